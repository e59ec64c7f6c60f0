use super::*;

fn cron(expression: &str) -> Cron {
    expression.parse().expect("it is a cron expression")
}

fn wrong(expression: &str) -> String {
    expression.parse::<Cron>().expect_err("it is none").to_string()
}

fn after(expression: &str, from: &str) -> String {
    let from: DateTime = from.parse().expect("it is a time");
    cron(expression).first_from(from).map_or("never".to_owned(), |at| at.to_string())
}

#[test]
fn a_time_is_found_that_is_not_before_the_one_given() {
    assert_eq!(after("0 2 * * *", "2026-01-01T02:00:00"), "2026-01-01T02:00:00");
    assert_eq!(after("0 2 * * *", "2026-01-01T02:00:01"), "2026-01-02T02:00:00");
    assert_eq!(after("*/15 9-17 * * *", "2026-01-01T17:46:00"), "2026-01-02T09:00:00");
    assert_eq!(after("5,35 * * * *", "2026-12-31T23:36:00"), "2027-01-01T00:05:00");
    assert_eq!(after("10-40/15 * * * *", "2026-01-01T00:26:00"), "2026-01-01T00:40:00");
    assert_eq!(after("30 */10 * * * *", "2026-01-01T00:00:31"), "2026-01-01T00:10:30");
}

#[test]
fn names_stand_for_numbers_and_sunday_is_first_and_last() {
    // 2026-01-01 is a Thursday.
    assert_eq!(after("0 0 * feb mon", "2026-01-01T00:00:00"), "2026-02-02T00:00:00");
    for sunday in ["0", "7", "SUN", "sun"] {
        let expression = format!("0 0 * * {sunday}");
        assert_eq!(after(&expression, "2026-01-01T00:00:00"), "2026-01-04T00:00:00");
    }
    assert_eq!(after("0 0 * * SAT-SUN", "2026-01-04T00:00:01"), "2026-01-10T00:00:00");
    assert_eq!(cron("0 0 * * FRI-SUN").weekdays, 0b110_0001);
}

#[test]
fn of_two_restricted_days_either_is_enough_and_of_one_that_begins_with_a_star_both_count() {
    assert_eq!(after("0 0 13 * FRI", "2026-01-03T00:00:00"), "2026-01-09T00:00:00");
    assert_eq!(after("0 0 13 * FRI", "2026-01-10T00:00:00"), "2026-01-13T00:00:00");
    assert_eq!(after("0 0 13 * *", "2026-01-03T00:00:00"), "2026-01-13T00:00:00");
    // Odd days that are Fridays.
    assert_eq!(after("0 0 */2 * FRI", "2026-01-03T00:00:00"), "2026-01-09T00:00:00");
    assert_eq!(after("0 0 */2 * FRI", "2026-01-10T00:00:00"), "2026-01-23T00:00:00");
}

#[test]
fn short_words_stand_for_expressions() {
    assert_eq!(after("@hourly", "2026-01-01T00:00:01"), "2026-01-01T01:00:00");
    assert_eq!(after("@daily", "2026-01-01T00:00:01"), "2026-01-02T00:00:00");
    assert_eq!(after("@weekly", "2026-01-01T00:00:01"), "2026-01-04T00:00:00");
    assert_eq!(after("@monthly", "2026-01-01T00:00:01"), "2026-02-01T00:00:00");
    assert_eq!(after("@yearly", "2026-01-01T00:00:01"), "2027-01-01T00:00:00");
    assert_eq!(cron(" @daily ").as_str(), "@daily");
}

#[test]
fn days_that_are_rare_are_found() {
    assert_eq!(after("0 0 29 2 *", "2096-03-01T00:00:00"), "2104-02-29T00:00:00");
    // The farthest that two of them are apart.
    assert_eq!(after("0 0 29 2 */7", "2088-03-01T00:00:00"), "2128-02-29T00:00:00");
    assert_eq!(after("0 0 31 * *", "2026-04-01T00:00:00"), "2026-05-31T00:00:00");
}

#[test]
fn the_calendar_ends() {
    assert_eq!(after("0 0 1 1 *", "9999-01-01T00:00:01"), "never");
}

#[test]
fn a_mistake_is_named_with_its_place() {
    let texts = [
        ("0 25 * * *", "hour 25 is not within 0 to 23 at character 3"),
        ("0 0 0 * *", "day of the month 0 is not within 1 to 31 at character 5"),
        ("0  2 * * MON-FRY", r#""FRY" is not a day of the week at character 14"#),
        ("0 2 * * 5-2", "the range of day of the week from 5 to 2 runs backwards at character 9"),
        ("1,2,x * * * *", r#""x" is not a minute at character 5"#),
        ("*/0 * * * *", r#"the step "0" is not a number from 1 on at character 3"#),
        ("5/10 * * * *", "a step of one value, where a range or * is needed, at character 3"),
        ("1, * * * *", r#""" is not a minute at character 3"#),
        (
            "* * * *",
            "there are 4 fields instead of five, or six with seconds first; the last is at \
             character 7",
        ),
        (
            "",
            "there are 0 fields instead of five, or six with seconds first; the last is at \
             character 1",
        ),
        (
            "@often",
            r#""@often" is not @hourly, @daily, @weekly, @monthly or @yearly at character 1"#,
        ),
        (
            "0 0 31 2 *",
            "it never comes, because no month that it names has the day named at character 5",
        ),
    ];
    for (expression, text) in texts {
        assert_eq!(wrong(expression), format!("cron {expression:?}: {text}"));
    }
}

#[test]
fn days_that_never_come_are_refused_and_those_that_seldom_do_are_not() {
    for never in ["0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "0 0 30-31 FEB */2"] {
        assert!(wrong(never).contains("never comes"), "{never}");
    }
    for seldom in ["0 0 29 2 *", "0 0 30,1 2 *", "0 0 31 2 MON", "0 0 31 2,3 *"] {
        cron(seldom);
    }
}

#[test]
fn the_longest_expression_is_read_and_one_byte_more_is_not() {
    let long = |bytes: usize| format!("0{} * * * *", ",0".repeat((bytes - 9) / 2));
    cron(&long(CRON_BYTES_MAX - 1));
    let padded = format!("{}  ", long(CRON_BYTES_MAX - 1));
    assert!(wrong(&padded).contains("401 bytes are over the limit of 400"), "{}", wrong(&padded));
}
