//! As much of Markdown as the checks need: fenced blocks and links.
//!
//! This is not a parser of Markdown: HTML, indented code blocks and code spans
//! that cross a line are taken for prose.

/// A fenced block, such as a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block<'a> {
    /// What stands behind the opening fence, such as `rust`.
    pub(crate) info: &'a str,
    /// The number of the opening fence's line, from 1.
    pub(crate) line: usize,
    /// Where the text between the fences begins and ends, in bytes.
    pub(crate) range: std::ops::Range<usize>,
}

/// A link to somewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link<'a> {
    /// The number of its line, from 1.
    pub(crate) line: usize,
    /// Where it leads.
    pub(crate) target: &'a str,
}

/// The fence a line begins with: its characters, and what stands behind them.
fn fence(line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    let mark = line.chars().next().filter(|mark| matches!(mark, '`' | '~'))?;
    let info = line.trim_start_matches(mark);
    let marks = &line[..line.len() - info.len()];
    // Backticks behind the fence make it a code span within a line of prose.
    (marks.len() >= 3 && !info.contains('`')).then_some((marks, info.trim()))
}

/// The fenced blocks of a text. One that is never closed ends with the text.
pub(crate) fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut open: Option<(&str, Block<'_>)> = None;
    let mut offset = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let end = offset + line.len();
        open = match (open, fence(line)) {
            (None, None) => None,
            (None, Some((marks, info))) => {
                Some((marks, Block { info, line: number + 1, range: end..text.len() }))
            }
            (Some((marks, block)), Some((closing, ""))) if closing.starts_with(marks) => {
                blocks.push(Block { range: block.range.start..offset, ..block });
                None
            }
            (Some(block), _) => Some(block),
        };
        offset = end;
    }
    blocks.extend(open.map(|(_, block)| block));
    blocks
}

/// The links of a text outside blocks and code spans: `[text](target)`,
/// `![text](target)` and `[label]: target`.
pub(crate) fn links(text: &str) -> Vec<Link<'_>> {
    let blocks = blocks(text);
    let mut links = Vec::new();
    let mut offset = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let is_code = blocks.iter().any(|block| block.range.contains(&offset));
        offset += line.len();
        if !is_code {
            links.extend(targets(line).map(|target| Link { line: number + 1, target }));
        }
    }
    links
}

/// The targets of the links of one line.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    let spans = code_spans(line);
    let inline = line.match_indices("](").filter_map(move |(at, marks)| {
        let is_code = spans.iter().any(|span| span.contains(&at));
        (!is_code).then(|| target(&line[at + marks.len()..], Some(')')))
    });
    let definition = line
        .trim()
        .strip_prefix('[')
        .filter(|rest| !rest.starts_with('^'))
        .and_then(|rest| rest.split_once("]:"))
        .filter(|(label, _)| !label.contains(']'))
        .map(|(_, rest)| target(rest.trim_start(), None));
    inline.chain(definition)
}

/// The target at the beginning of a text, up to a space or the closing bracket
/// that is not part of it.
fn target(text: &str, closing: Option<char>) -> &str {
    if let Some(quoted) = text.strip_prefix('<') {
        return quoted.split('>').next().unwrap_or(quoted);
    }
    let mut depth = 0;
    let end = text.find(|character: char| {
        if character == '(' {
            depth += 1;
        } else if character == ')' && depth > 0 {
            depth -= 1;
        } else {
            return character.is_whitespace() || Some(character) == closing;
        }
        false
    });
    &text[..end.unwrap_or(text.len())]
}

/// The code spans of one line, in bytes.
fn code_spans(line: &str) -> Vec<std::ops::Range<usize>> {
    let mut spans = Vec::new();
    let mut at = 0;
    while let Some(start) = line[at..].find('`').map(|found| at + found) {
        let marks = line[start..].len() - line[start..].trim_start_matches('`').len();
        at = start + marks;
        let close = "`".repeat(marks);
        if let Some(length) = line[at..].find(&close) {
            at += length + marks;
            spans.push(start..at);
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(usize, &str)> {
        links(text).into_iter().map(|link| (link.line, link.target)).collect()
    }

    #[test]
    fn blocks_have_their_info_their_line_and_their_exact_text() {
        let text = "a\n```rust\nfn x() {}\n\n```\nb\n~~~~ text\n```\n~~~~\n";
        let blocks = blocks(text);
        let seen: Vec<_> =
            blocks.iter().map(|b| (b.info, b.line, &text[b.range.clone()])).collect();
        assert_eq!(seen, [("rust", 2, "fn x() {}\n\n"), ("text", 7, "```\n")]);
    }

    #[test]
    fn a_block_that_is_never_closed_ends_with_the_text() {
        let text = "```sh\nls\n";
        assert_eq!(blocks(text), [Block { info: "sh", line: 1, range: 6..9 }]);
    }

    #[test]
    fn links_of_every_form_are_found_with_their_lines() {
        let text = "See [a](a.md) and\n![b](b.png \"a title\"), [c](<c d.md>).\n[e]: e.md#part\n";
        assert_eq!(found(text), [(1, "a.md"), (2, "b.png"), (2, "c d.md"), (3, "e.md#part")]);
    }

    #[test]
    fn a_target_keeps_the_brackets_that_belong_to_it() {
        assert_eq!(found("([x](a_(b).md)) [y](c.md)"), [(1, "a_(b).md"), (1, "c.md")]);
    }

    #[test]
    fn code_and_footnotes_are_not_links() {
        let text = "`[a](a.md)` and ``[`b`](b.md)``\n```\n[c](c.md)\n```\n[^1]: d.md\n[e](e.md)\n";
        assert_eq!(found(text), [(6, "e.md")]);
    }
}
