//! Addresses and texts without their passwords.
//!
//! What is shown is what is known to be harmless; whatever else an address holds is a secret.

/// What is shown in the place of a secret.
pub(crate) const HIDDEN: &str = "***";

/// How the schemes of databases end: there is more than one, and something may stand before it.
const DATABASE: [&str; 2] = ["postgres", "postgresql"];

/// How the address of a unix socket begins.
const SOCKET: &str = "unix:";

/// The options of an address whose values are shown: none of them is a secret, or can hold one.
/// `options` is not among them: what it hands to the server is anybody's.
const SHOWN: [&str; 18] = [
    "application_name",
    "channel_binding",
    "connect_timeout",
    "dbname",
    "host",
    "hostaddr",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "load_balance_hosts",
    "port",
    "sslmode",
    "sslnegotiation",
    "sslrootcert",
    "target_session_attrs",
    "tcp_user_timeout",
    "user",
];

/// What stands before a secret in an address of words.
const WORDS: [&str; 2] = ["password=", "options="];

/// An address without its passwords: neither in front of the host, nor among the options, nor in
/// the form of words with values.
pub(crate) fn redacted(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        if url.starts_with(SOCKET) {
            return url.to_owned();
        }
        // A value in quotes may have spaces: what is behind such a word is not told.
        if url.contains(['\'', '"', '\\']) {
            return HIDDEN.to_owned();
        }
        return url.split(' ').map(option).collect::<Vec<_>>().join(" ");
    };
    // The last one: a password that is not escaped may have others, and whatever else ends a host.
    let (user, rest) = match rest.rsplit_once('@') {
        Some((user, rest)) => (format!("{}@", without_password(scheme, user)), rest),
        None => (String::new(), rest),
    };
    let (place, query) = rest.split_once('?').map_or((rest, None), |(it, query)| (it, Some(query)));
    let query = query.map(|query| query.split('&').map(option).collect::<Vec<_>>().join("&"));
    let query = query.map_or_else(String::new, |query| format!("?{query}"));
    format!("{scheme}://{user}{place}{query}")
}

/// What stands in front of an `@`. Only a database has a user whose name is no secret.
fn without_password(scheme: &str, user: &str) -> String {
    let is_database = DATABASE.iter().any(|it| scheme.ends_with(it));
    let is_shown = |name: &str| is_database && is_name(name);
    match user.split_once(':') {
        Some((name, _)) if is_shown(name) => format!("{name}:{HIDDEN}"),
        None if is_shown(user) => user.to_owned(),
        Some(_) | None => HIDDEN.to_owned(),
    }
}

/// Whether that can be a name, and no piece of something else.
fn is_name(text: &str) -> bool {
    !text.contains(['/', '?', '#', '=', '&', '@'])
}

/// An option of an address, without its value unless that is harmless; without its name if that is
/// no word, and may be a piece of a secret.
fn option(pair: &str) -> String {
    let is_word = |name: &str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    match pair.split_once('=') {
        Some((name, _)) if SHOWN.contains(&name) => pair.to_owned(),
        Some((name, _)) if is_word(name) => format!("{name}={HIDDEN}"),
        Some(_) | None => HIDDEN.to_owned(),
    }
}

/// A text in which addresses have no passwords: whatever the error was, what somebody typed into the
/// wrong place is not repeated.
pub(crate) fn scrubbed(text: &str) -> String {
    text.split_inclusive('\n').map(scrubbed_line).collect()
}

fn scrubbed_line(line: &str) -> String {
    let is_end = |character: char| character.is_whitespace() || "'\"`<>".contains(character);
    let word = |word: &str| {
        let bare = word.trim_end_matches(is_end);
        match bare.contains("://") && bare.contains(['@', '?']) {
            true => redacted(bare) + &word[bare.len()..],
            false => word.to_owned(),
        }
    };
    let line: String = line.split_inclusive(is_end).map(word).collect();
    // Of an address in words: where its value ends is not known, if it is in quotes.
    let places = WORDS
        .iter()
        .flat_map(|word| line.match_indices(word).map(|(begin, word)| begin + word.len()));
    match places.filter(|place| !line[*place..].starts_with(HIDDEN)).min() {
        Some(place) => {
            let end = if line.ends_with('\n') { "\n" } else { "" };
            format!("{}{HIDDEN}{end}", &line[..place])
        }
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_told() {
        for (url, told) in [
            ("postgres://anna:se@cret@h:5432/db", "postgres://anna:***@h:5432/db"),
            ("postgres://anna@h/db?sslmode=require", "postgres://anna@h/db?sslmode=require"),
            ("postgres://h/db?user=a&password=secret", "postgres://h/db?user=a&password=***"),
            ("postgres://h/db?options=-c%20a%3Dsecret", "postgres://h/db?options=***"),
            (
                "postgres://h/db?sslpassword=secret&x=secret",
                "postgres://h/db?sslpassword=***&x=***",
            ),
            ("postgres://anna:se?cret@h/db", "postgres://anna:***@h/db"),
            ("postgres://anna:se/cret@h/db?port=1", "postgres://anna:***@h/db?port=1"),
            ("postgres://h/db?password=secret&user=a@b", "postgres://***@b"),
            ("postgres://h:1/db?password=secret&user=a@b", "postgres://h:***@b"),
            ("host=h user=a password=secret", "host=h user=a password=***"),
            ("host=h password='a secret'", "***"),
            ("https://:secret@h", "https://***@h"),
            ("https://secret@h/x", "https://***@h/x"),
            ("https://h/x?token=secret", "https://h/x?token=***"),
            ("https://h/x?secret", "https://h/x?***"),
            ("postgres://h/d?SECRET=1", "postgres://h/d?***"),
            ("secret", "***"),
            ("secret\nsecret", "***"),
            ("unix:/run/windlass.sock", "unix:/run/windlass.sock"),
        ] {
            assert_eq!(redacted(url), told);
        }
    }

    #[test]
    fn an_address_within_a_text_has_no_password() {
        for (text, told) in [
            ("unexpected argument 'postgres://a:secret@h/d' found", "'postgres://a:***@h/d' found"),
            ("no: \"postgres://h/d?password=secret\"", "no: \"postgres://h/d?password=***\""),
            ("one\npostgres://a:secret@h\ntwo", "one\npostgres://a:***@h\ntwo"),
            ("see https://example.com/a and b@c", "see https://example.com/a and b@c"),
            ("database-url=postgres://a:secret@h", "database-url=postgres://a:***@h"),
            ("no 'host=h password=secret'\n\nUsage: x", "no 'host=h password=***\n\nUsage: x"),
            ("no \"password='a secret'\" here", "no \"password=***"),
            ("no options='-c a.b=secret'", "no options=***"),
        ] {
            assert!(scrubbed(text).ends_with(told), "{}", scrubbed(text));
            assert!(!scrubbed(text).contains("secret"));
        }
    }
}
