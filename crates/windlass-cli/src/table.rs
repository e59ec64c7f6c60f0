//! Tables that fit the terminal, with colours where there are any.

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Row, Table, presets};

use crate::text::{Colour, Screen, terminal_width};

/// Rows under a header as a table that fits the terminal, with the columns `numbers` to the
/// right. Where it is too wide, the widest columns are cut; elsewhere it has its full width.
pub(crate) fn listing(
    header: &[&str],
    numbers: &[usize],
    rows: impl Iterator<Item = Vec<String>>,
) -> String {
    fitted(header, numbers, rows, terminal_width(), Screen::detect(false))
}

/// The columns that are cut last: what is cut cannot be given to another command.
const IDS: [&str; 2] = ["run", "id"];

/// The column whose words have colours.
const STATE: &str = "state";

/// Characters without a width that stand for colours until the table is laid out. Text of users
/// has none of them: they are among those that [`shown`](crate::text::shown) escapes.
const MARKS: [(char, Colour); 4] = [
    ('\u{2061}', Colour::Green),
    ('\u{2062}', Colour::Red),
    ('\u{2063}', Colour::Cyan),
    ('\u{2064}', Colour::Yellow),
];

/// The colour of a state of a run, a task, a worker or a leader.
fn colour(word: &str) -> Option<Colour> {
    match word {
        "succeeded" | "live" | "leads" => Some(Colour::Green),
        "failed" | "dying" | "dead" => Some(Colour::Red),
        "running" => Some(Colour::Cyan),
        "cancelled" | "draining" | "silent" | "given up" => Some(Colour::Yellow),
        _ => None,
    }
}

fn marked(word: String) -> String {
    let is_of = |(_, of): &&(char, Colour)| Some(*of) == colour(&word);
    match MARKS.iter().find(is_of) {
        Some((mark, _)) => format!("{mark}{word}"),
        None => word,
    }
}

fn fitted(
    header: &[&str],
    numbers: &[usize],
    rows: impl Iterator<Item = Vec<String>>,
    width: Option<u16>,
    screen: Screen,
) -> String {
    let state = header.iter().position(|name| *name == STATE).filter(|_| screen.has_colours);
    let row = |mut cells: Vec<String>| {
        if let Some(cell) = state.and_then(|place| cells.get_mut(place)) {
            *cell = marked(std::mem::take(cell));
        }
        let mut row = Row::from(cells);
        row.max_height(1);
        row
    };
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    // Cut where the column ends, not at the word before.
    table.set_delimiter('\0');
    table.set_header(row(header.iter().map(|name| (*name).to_owned()).collect()));
    table.add_rows(rows.map(row));
    for number in numbers {
        if let Some(column) = table.column_mut(*number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    match width {
        Some(width) => {
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
            let widths = table.column_max_content_widths();
            for (place, name) in header.iter().enumerate() {
                let is_id = IDS.contains(name) && widths[place] <= width / 2;
                if let Some(column) = table.column_mut(place).filter(|_| is_id) {
                    column.set_constraint(ColumnConstraint::ContentWidth);
                }
            }
        }
        None => {
            table.set_content_arrangement(ContentArrangement::Disabled);
        }
    }
    let lines = table.lines().enumerate().map(|(place, line)| {
        // Each column has a space before it and one behind it.
        let line = line.strip_prefix(' ').unwrap_or(&line).trim_end();
        let line =
            if place == 0 { screen.paint(Colour::Bold, line) } else { painted(line, screen) };
        line + "\n"
    });
    lines.collect()
}

/// A line with colours in the place of their marks.
fn painted(line: &str, screen: Screen) -> String {
    for (mark, colour) in MARKS {
        if let Some((before, word)) = line.split_once(mark) {
            let (word, behind) = word.split_at(word.find("  ").unwrap_or(word.len()));
            return format!("{before}{}{behind}", screen.paint(colour, word));
        }
    }
    line.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Screen = Screen { is_live: false, has_colours: false };
    const COLOURS: Screen = Screen { is_live: true, has_colours: true };
    const ID: &str = "01981c2e-7a40-7c1f-9d57-0242ac120002";

    fn table(width: Option<u16>, screen: Screen) -> String {
        let row = |number: &str, state: &str, error: &str| {
            vec![ID.to_owned(), number.to_owned(), state.to_owned(), error.to_owned()]
        };
        let long = "the mailbox of everybody is full, and so is that of everybody else";
        let rows = [row("1", "failed", long), row("12", "succeeded", "東京")];
        fitted(&["run", "number", "state", "error"], &[1], rows.into_iter(), width, screen)
    }

    #[test]
    fn without_a_terminal_a_table_has_its_full_width() {
        let text = table(None, PLAIN);
        assert!(text.contains("so is that of everybody else\n"), "{text}");
        assert!(text.is_ascii() || text.contains("東京"), "{text}");
    }

    #[test]
    fn a_table_fits_the_terminal_and_its_ids_are_whole() {
        for width in [74, 80, 100] {
            let text = table(Some(width), PLAIN);
            for line in text.lines() {
                assert!(line.chars().count() <= usize::from(width), "{width}: {line}");
            }
            assert_eq!(text.lines().count(), 3, "each row is a line: {text}");
            assert_eq!((text.matches(ID).count(), text.matches('…').count()), (2, 1), "{text}");
        }
        let narrow = table(Some(40), PLAIN);
        assert!(narrow.lines().all(|line| line.chars().count() <= 40), "{narrow}");
    }

    #[test]
    fn states_have_colours_on_a_terminal_and_columns_stay_in_line() {
        let plain = table(Some(100), PLAIN);
        assert!(!plain.contains('\u{1b}'), "{plain:?}");
        let coloured = table(Some(100), COLOURS);
        assert!(coloured.contains("\u{1b}[31mfailed\u{1b}[0m "), "{coloured:?}");
        assert!(coloured.contains("\u{1b}[32msucceeded\u{1b}[0m "), "{coloured:?}");
        let mut stripped = coloured;
        for code in ["\u{1b}[0m", "\u{1b}[1m", "\u{1b}[31m", "\u{1b}[32m"] {
            stripped = stripped.replace(code, "");
        }
        assert_eq!(stripped, plain);
    }

    #[test]
    fn a_column_of_numbers_stays_to_the_right_if_it_is_the_first() {
        let rows = [vec!["1".to_owned()], vec!["100".to_owned()]].into_iter();
        assert_eq!(fitted(&["n"], &[0], rows, None, PLAIN), "  n\n  1\n100\n");
    }
}
