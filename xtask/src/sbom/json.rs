//! JSON, as far as a document of names and texts needs it: one line for each object.

use std::fmt::Write as _;

/// A text.
pub(super) fn text(text: &str) -> String {
    let mut json = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            // Writing to a string cannot fail.
            control if control.is_control() => drop(write!(json, "\\u{:04x}", u32::from(control))),
            plain => json.push(plain),
        }
    }
    json + "\""
}

/// An object of names and values that are JSON.
pub(super) fn object<'a>(fields: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let fields = fields.into_iter().map(|(name, value)| format!("{}:{value}", text(name)));
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

/// A list of values that are JSON, each in a line of its own.
pub(super) fn list(items: impl IntoIterator<Item = String>) -> String {
    let items: Vec<String> = items.into_iter().collect();
    match items.as_slice() {
        [] => "[]".to_owned(),
        [one] => format!("[{one}]"),
        items => format!("[\n{}\n]", items.join(",\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_lists_and_objects_are_json() {
        assert_eq!(text("a\"b\\c\nd\u{1b}é"), r#""a\"b\\c\u000ad\u001bé""#);
        assert_eq!(list([]), "[]");
        assert_eq!(object([("a", text("b")), ("c", list([text("d")]))]), r#"{"a":"b","c":["d"]}"#);
    }
}
