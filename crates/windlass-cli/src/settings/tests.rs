use super::*;

const ONE: &str = r#"
profile = "dev"
database_url = "postgres://file/all"
pooled = true

[profiles.dev]
database_url = "postgres://profile/dev"
pooled = false

[profiles.prod]
server = "https://prod.example.com"

[profiles.empty]
"#;

/// The settings from flags, variables and the text of a file.
fn settings(flags: GlobalArguments, variables: &[(&str, &str)], text: &str) -> Settings {
    resolved(flags, variables, text).expect("they make sense")
}

fn resolved(
    flags: GlobalArguments,
    variables: &[(&str, &str)],
    text: &str,
) -> anyhow::Result<Settings> {
    let variable = |name: &'static str| {
        let found = variables.iter().find(|(it, _)| *it == name);
        Ok(found.map(|(_, value)| (*value).to_owned()))
    };
    let file = file::parse(text).expect("it is a file");
    Settings::resolve(&flags, variable, file, Some(("c.toml".into(), Source::Nowhere)))
}

fn told(settings: &Settings) -> (String, String) {
    let (target, from) = settings.target.clone().expect("one is named");
    (format!("{target:?}"), from.to_string())
}

#[track_caller]
fn assert_target(settings: &Settings, target: &str, from: &str) {
    assert_eq!(told(settings), (target.to_owned(), from.to_owned()));
}

#[test]
fn each_setting_is_taken_from_the_first_place_that_has_it() {
    let none = GlobalArguments::default;
    let named = |name: &str| GlobalArguments { profile: Some(name.to_owned()), ..none() };
    let variables = &[("DATABASE_URL", "postgres://variable"), ("WINDLASS_PROFILE", "prod")];
    let flag = GlobalArguments { server: Some("https://flag".to_owned()), ..named("dev") };

    assert_target(&settings(flag, variables, ONE), r#"Server("https://flag")"#, "flag --server");
    let by_flag = settings(named("dev"), variables, ONE);
    assert_target(&by_flag, r#"Database("postgres://profile/dev")"#, "profile dev");
    let by_variable = settings(none(), variables, ONE);
    assert_target(&by_variable, r#"Database("postgres://variable")"#, "environment DATABASE_URL");
    let by_profile = settings(none(), &variables[1..], ONE);
    assert_target(&by_profile, r#"Server("https://prod.example.com")"#, "profile prod");
    let by_default = settings(none(), &[], ONE);
    assert_target(&by_default, r#"Database("postgres://profile/dev")"#, "profile dev");
    let by_file = settings(named("empty"), &[], ONE);
    assert_target(&by_file, r#"Database("postgres://file/all")"#, "config file");

    assert_eq!(by_file.pooled, (true, Source::File));
    assert_eq!(by_default.pooled, (false, Source::Profile("dev".to_owned())));
    let pooled = GlobalArguments { pooled: true, ..none() };
    assert_eq!(settings(pooled, &[], ONE).pooled, (true, Source::Flag("pooled")));
    assert_eq!(settings(none(), &[], "").pooled, (false, Source::Nowhere));
}

#[test]
fn what_names_two_places_or_a_profile_that_is_not_there_is_refused() {
    let none = GlobalArguments::default;
    let both = GlobalArguments {
        database_url: Some("postgres://a".to_owned()),
        server: Some("https://b".to_owned()),
        ..none()
    };
    let named = GlobalArguments { profile: Some("prdo".to_owned()), ..none() };
    let two = "[profiles.two]\nserver = 'https://a'\ndatabase_url = 'postgres://b'";
    let file = GlobalArguments { profile: Some("two".to_owned()), ..none() };
    for (flags, text, wrong) in [
        (both, "", "flag --database-url and flag --server name both"),
        (named, ONE, "profile prdo (flag --profile) is not in c.toml, which has dev, empty,"),
        (file, two, "profile two names both a database_url and a server"),
    ] {
        let error = resolved(flags, &[], text).expect_err("it makes no sense");
        assert!(error.to_string().contains(wrong), "{error}");
    }
}

#[test]
fn the_server_of_the_environment_is_preferred_and_its_database_serves_what_needs_one() {
    let variables = &[("DATABASE_URL", "postgres://a"), ("WINDLASS_SERVER", "https://b")];
    let both = settings(GlobalArguments::default(), variables, "");
    assert_target(&both, r#"Server("https://b")"#, "environment WINDLASS_SERVER");
    assert_eq!(both.database("doctor").expect("it is named"), "postgres://a");
    assert_eq!(row(&both, "server").0, "https://b");
    assert_eq!(row(&both, "database_url").1, "environment DATABASE_URL");

    let database = Some("postgres://flag".to_owned());
    let flag = GlobalArguments { database_url: database, ..GlobalArguments::default() };
    let by_flag = settings(flag, variables, "");
    assert_target(&by_flag, r#"Database("postgres://flag")"#, "flag --database-url");
    let server = Some("https://flag".to_owned());
    let flag = GlobalArguments { server, ..GlobalArguments::default() };
    let error = settings(flag, variables, "").database("doctor").expect_err("a flag decides");
    assert!(error.to_string().contains("not the server https://flag"), "{error}");
}

#[test]
fn a_wrong_field_of_the_file_is_named_with_its_line_and_without_its_value() {
    for (text, wrong) in [
        (
            "\ndatbase_url = 'postgres://u:secret@h'",
            "line 2, column 1: unknown field `datbase_url`",
        ),
        ("[profiles.prod]\n  sever = 'secret'", "line 2, column 3: unknown field `sever`"),
        ("pooled = 'secret'", "line 1, column 10: a text where a boolean is expected"),
        ("[profiles]\nprod = 'secret'", "line 2, column 8: a text where a table is expected"),
        ("a = 'secret", "line 1, column "),
        ("token = ['secret']", "line 1, column "),
        ("[profiles.prod]\ntoken = 7", "line 2, column "),
        ("[profiles.prod]\ntokn = 'secret'", "line 2, column 1: unknown field `tokn`"),
    ] {
        let problem = file::parse(text).expect_err("it is wrong");
        assert!(problem.contains(wrong) && !problem.contains("secret"), "{problem}");
    }
}

/// What is told of a setting, and where it comes from.
fn row(settings: &Settings, name: &str) -> (Value, Value) {
    let told = settings.json();
    (told[name]["value"].clone(), told[name]["from"].clone())
}

const SHOWN: &str = r#"
server = "https://file"
token_file = "/file/token"
ca_file = "/file/ca"

[profiles.prod]
server = "https://prod"
token = "SECRET"
client_cert = "/prod/cert"
client_key = "/prod/key"
"#;

#[test]
fn keys_are_taken_from_the_first_place_that_has_them_and_never_shown() {
    let none = GlobalArguments::default;
    let text = "payload_keys = \"/file/keys\"";
    let (keys, file) = ("WINDLASS_PAYLOAD_KEYS", "WINDLASS_PAYLOAD_KEYS_FILE");
    let by_file = settings(none(), &[], text);
    assert_eq!(row(&by_file, "payload_keys"), ("/file/keys".into(), "config file".into()));
    let by_keys = settings(none(), &[(keys, "k1:SECRET")], text);
    let from = "environment WINDLASS_PAYLOAD_KEYS";
    assert_eq!(row(&by_keys, "payload_keys"), ("***".into(), from.into()));
    let all = format!("{by_keys:?}{}{}", by_keys.table(), by_keys.json());
    assert!(!all.contains("SECRET"), "{all}");
    let by_name = settings(none(), &[(file, "/named")], text);
    let from = "environment WINDLASS_PAYLOAD_KEYS_FILE";
    assert_eq!(row(&by_name, "payload_keys"), ("/named".into(), from.into()));
    let flag = GlobalArguments { payload_keys: Some("/flag".to_owned()), ..none() };
    let by_flag = settings(flag, &[(keys, "k1:SECRET")], text);
    assert_eq!(row(&by_flag, "payload_keys"), ("/flag".into(), "flag --payload-keys".into()));
}

#[test]
fn what_a_server_is_shown_is_taken_from_the_first_place_that_has_it() {
    let none = GlobalArguments::default;
    let prod = || GlobalArguments { profile: Some("prod".to_owned()), ..none() };
    let by_profile = settings(prod(), &[("WINDLASS_TOKEN", "OTHER")], SHOWN);
    assert_eq!(row(&by_profile, "token"), ("***".into(), "profile prod".into()));
    assert_eq!(row(&by_profile, "token_file"), (Value::Null, Value::Null));
    assert_eq!(row(&by_profile, "ca_file"), ("/file/ca".into(), "config file".into()));
    assert_eq!(row(&by_profile, "client_key"), ("/prod/key".into(), "profile prod".into()));
    let by_variable = settings(none(), &[("WINDLASS_TOKEN", "OTHER")], SHOWN);
    assert_eq!(row(&by_variable, "token"), ("***".into(), "environment WINDLASS_TOKEN".into()));
    let by_file = settings(none(), &[], SHOWN);
    assert_eq!(row(&by_file, "token_file"), ("/file/token".into(), "config file".into()));
    let all = format!("{by_profile:?}{}{by_variable:?}{}", by_profile.table(), by_variable.json());
    assert!(!all.contains("SECRET") && !all.contains("OTHER") && all.contains("***"), "{all}");
}

#[test]
fn a_token_of_the_file_goes_to_no_server_that_the_file_does_not_name() {
    let flag = GlobalArguments {
        server: Some("https://evil".to_owned()),
        profile: Some("prod".to_owned()),
        ..GlobalArguments::default()
    };
    let variables = &[("WINDLASS_SERVER", "https://evil"), ("WINDLASS_PROFILE", "prod")];
    for settings in [
        settings(flag, &[], SHOWN),
        settings(GlobalArguments::default(), variables, SHOWN),
        settings(GlobalArguments::default(), &variables[..1], SHOWN),
    ] {
        for name in ["token", "token_file", "client_cert", "client_key"] {
            assert_eq!(row(&settings, name), (Value::Null, Value::Null), "{name}");
        }
    }
}

#[test]
fn what_a_server_is_shown_is_said_once_and_whole() {
    for (variables, text, wrong) in [
        (
            &[("WINDLASS_TOKEN", "SECRET"), ("WINDLASS_TOKEN_FILE", "/t")][..],
            "",
            "environment WINDLASS_TOKEN and environment WINDLASS_TOKEN_FILE are both set",
        ),
        (
            &[("WINDLASS_CLIENT_KEY_FILE", "/k")],
            "",
            "environment WINDLASS_CLIENT_CERT_FILE and environment WINDLASS_CLIENT_KEY_FILE are of",
        ),
        (&[("WINDLASS_ALLOW_PLAINTEXT_TOKEN", "1")], "", "not true or false"),
        (
            &[],
            "token = 'SECRET'\ntoken_file = '/t'",
            "config file: token and token_file are both set",
        ),
        (&[], "[profiles.a]\nclient_cert = '/c'\n", ""),
    ] {
        let resolved = resolved(GlobalArguments::default(), variables, text);
        match wrong {
            "" => drop(resolved.expect("nobody asks for that profile")),
            wrong => {
                let error = resolved.expect_err(wrong).to_string();
                assert!(error.contains(wrong) && !error.contains("SECRET"), "{error}");
            }
        }
    }
}

#[test]
fn passwords_are_not_told() {
    let variables = &[("DATABASE_URL", "postgres://anna:secret@h/db")];
    let settings = settings(GlobalArguments::default(), variables, "");
    let all = format!("{settings:?}{}{}", settings.table(), settings.json());
    assert!(!all.contains("secret") && all.contains("***"), "{all}");
}

#[test]
fn the_address_of_a_database_may_be_in_a_file_that_the_environment_names() {
    let path = std::env::temp_dir().join(format!("windlass-database-url-{}", std::process::id()));
    std::fs::write(&path, "postgres://anna:secret@file/db\n").expect("it can be written");
    let path = path.to_str().expect("it is UTF-8");
    let none = GlobalArguments::default;
    let by_file = resolved(none(), &[("DATABASE_URL_FILE", path)], "");
    let two = [("DATABASE_URL_FILE", path), ("DATABASE_URL", "postgres://variable")];
    let by_both = resolved(none(), &two, "");
    std::fs::remove_file(path).expect("it is there");
    let wanted = r#"Database("postgres://anna:***@file/db")"#;
    let by_file = by_file.expect("it makes sense");
    assert_target(&by_file, wanted, "environment DATABASE_URL_FILE");
    let Ok(Target::Database(url)) = by_file.target() else { panic!("{by_file:?}") };
    assert_eq!(url, "postgres://anna:secret@file/db");
    let error = by_both.expect_err("it is not clear").to_string();
    assert!(error.contains("DATABASE_URL and DATABASE_URL_FILE are both set"), "{error}");
    let error = resolved(none(), &[("DATABASE_URL_FILE", path)], "").expect_err("it is gone");
    let error = error.to_string();
    assert!(error.contains("DATABASE_URL_FILE: the secret in ") && error.contains(path), "{error}");
}

#[test]
fn what_a_config_file_says_is_not_shown_by_accident() {
    let file = file::parse("database_url = 'CANARY'\n[profiles.a]\ndatabase_url = 'CANARY'");
    let shown = format!("{:?}", file.expect("it is a file"));
    assert!(!shown.contains("CANARY"), "{shown}");
}
