//! A file of SQL, statement by statement.

/// The statements of a text, without the comments before and between them, and without
/// their semicolons.
///
/// Knows strings, quoted names, comments (nested, as PostgreSQL has them) and bodies in
/// dollar quotes. Does not know `begin atomic`.
pub(super) fn statements(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    loop {
        rest = skip_blank(rest);
        if rest.is_empty() {
            return found;
        }
        let end = statement_end(rest);
        let statement = rest[..end].trim_end();
        if !statement.is_empty() {
            found.push(statement);
        }
        rest = rest[end..].strip_prefix(';').unwrap_or_default();
    }
}

/// Skips spaces and comments.
fn skip_blank(text: &str) -> &str {
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        match comment_length(rest) {
            0 => return rest,
            length => rest = &rest[length..],
        }
    }
}

/// Where the statement at the beginning of a text ends.
fn statement_end(text: &str) -> usize {
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with(';') {
            return at;
        }
        let length = [comment_length(rest), quoted_length(text, at), dollar_length(text, at)];
        let length = length.into_iter().find(|length| *length > 0);
        at += length.unwrap_or_else(|| rest.chars().next().map_or(1, char::len_utf8));
    }
    text.len()
}

/// How long the comment at the beginning of a text is; 0 if there is none.
fn comment_length(text: &str) -> usize {
    if text.starts_with("--") {
        return text.find('\n').unwrap_or(text.len());
    }
    if !text.starts_with("/*") {
        return 0;
    }
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// How long the string or quoted name at a place is; 0 if there is none. A doubled quote
/// ends one and begins the next, which comes to the same.
fn quoted_length(text: &str, at: usize) -> usize {
    let rest = &text[at..];
    let Some(quote) = rest.chars().next().filter(|first| matches!(first, '\'' | '"')) else {
        return 0;
    };
    let before = text[..at].trim_end_matches(['e', 'E']);
    let has_escapes = quote == '\''
        && before.len() + 1 == at
        && !before.ends_with(|it: char| it.is_alphanumeric() || it == '_');
    let mut is_escaped = false;
    for (index, letter) in rest.char_indices().skip(1) {
        if is_escaped {
            is_escaped = false;
        } else if has_escapes && letter == '\\' {
            is_escaped = true;
        } else if letter == quote {
            return index + 1;
        }
    }
    rest.len()
}

/// How long the text in dollar quotes at a place is; 0 if there is none.
fn dollar_length(text: &str, at: usize) -> usize {
    let rest = &text[at..];
    let is_letter = |it: char| it.is_alphanumeric() || it == '_';
    // `a$b$` is a name, `$1` a parameter.
    if !rest.starts_with('$') || text[..at].ends_with(is_letter) {
        return 0;
    }
    let tag_end = rest[1..].find(|it: char| !is_letter(it)).map(|end| end + 1);
    let Some(end) = tag_end.filter(|end| rest[*end..].starts_with('$')) else {
        return 0;
    };
    if rest[1..].starts_with(|it: char| it.is_ascii_digit()) {
        return 0;
    }
    let tag = &rest[..=end];
    match rest[tag.len()..].find(tag) {
        Some(body) => body + 2 * tag.len(),
        None => rest.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_semicolon_ends_a_statement_only_outside_of_everything() {
        let cases: [(&str, &[&str]); 12] = [
            ("", &[]),
            (" ; ;\n", &[]),
            ("a; b", &["a", "b"]),
            ("-- x; y\na -- z; w\n; b", &["a -- z; w", "b"]),
            ("/* a; /* b; */ c; */ d; e", &["d", "e"]),
            ("select 'a;''b;'; c", &["select 'a;''b;'", "c"]),
            ("select \"a;\"; b", &["select \"a;\"", "b"]),
            (r"select E'a\';b'; c", &[r"select E'a\';b'", "c"]),
            (r"select 'a\'; c", &[r"select 'a\'", "c"]),
            ("do $$ a; $b$ c; $$; d", &["do $$ a; $b$ c; $$", "d"]),
            (
                "do $x$ a; $$ b; $x$; select $1; c$d$; e",
                &["do $x$ a; $$ b; $x$", "select $1", "c$d$", "e"],
            ),
            ("select 'é;' -- ü;\n;b", &["select 'é;' -- ü;", "b"]),
        ];
        for (text, wanted) in cases {
            assert_eq!(statements(text), wanted, "{text}");
        }
    }

    #[test]
    fn what_is_left_open_goes_to_the_end() {
        for text in ["select 'a; b", "do $$ a; b", "select \"a; b"] {
            assert_eq!(statements(text), [text]);
        }
        assert_eq!(statements("/* a; b"), [""; 0]);
    }
}
