//! Names that are offered in place of an unknown one.

/// The number of names that are offered, at most.
pub const NEAREST_MAX: usize = 3;

/// Returns the names that are most like `name`, the nearest first, at most [`NEAREST_MAX`]; none if
/// no name is like it.
pub fn nearest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let limit = (name.chars().count() / 2).max(2);
    let is_part = |other: &str| other.contains(name) || name.contains(other);
    let distance = |other: &str| if is_part(other) { 1 } else { edits(name, other) };
    let mut near: Vec<(usize, &str)> = names.into_iter().map(|it| (distance(it), it)).collect();
    near.retain(|(distance, _)| *distance <= limit);
    near.sort_unstable();
    near.dedup();
    near.into_iter().take(NEAREST_MAX).map(|(_, name)| name).collect()
}

/// Returns how many letters must be inserted, removed or replaced to turn one text into the other.
fn edits(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (place, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = place + 1;
        for (column, found) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(*found != letter);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_names_are_offered_and_none_that_is_nothing_like_it() {
        let names = ["order", "order~undo", "refund", "mail", "mailing-list", "mail"];
        assert_eq!(nearest("ordr", names), ["order"]);
        assert_eq!(nearest("mai", names), ["mail", "mailing-list"]);
        assert_eq!(nearest("ordre", names), ["order"]);
        assert!(nearest("invoice-total", names).is_empty());
        assert_eq!((edits("", "abc"), edits("kitten", "sitting"), edits("a", "a")), (3, 3, 0));
    }
}
