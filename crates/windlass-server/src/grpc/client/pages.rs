//! Answers that are no larger than messages may be.

use prost::Message;
use windlass::store::PAGE_MAX;

use crate::pages::PAGE_BYTES_MAX;

/// What of a list goes into one answer, and whether something was left out.
pub(super) fn cut<M: Message>(mut items: Vec<M>) -> (Vec<M>, bool) {
    let mut bytes = 0_usize;
    let mut fits = |item: &M| {
        bytes = bytes.saturating_add(item.encoded_len());
        bytes <= PAGE_BYTES_MAX
    };
    let kept = items.iter().take_while(|item| fits(item)).count().max(1);
    let has_more = items.len() > kept;
    items.truncate(kept);
    (items, has_more)
}

/// How long the first try of a page is that says where the next one begins.
pub(super) fn first(limit: u32) -> usize {
    match limit as usize {
        0 => PAGE_MAX,
        limit => limit.min(PAGE_MAX),
    }
}

/// How long the next try is, if a page of this length is too large.
pub(super) fn shorter(page: &impl Message, limit: usize) -> Option<usize> {
    (limit > 1 && page.encoded_len() > PAGE_BYTES_MAX).then_some(limit / 2)
}

/// How many a list has at most that has no other mark of its end than that it is short.
pub(super) fn at_most(limit: Option<u32>) -> usize {
    limit.map_or(PAGE_MAX, |limit| limit as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_cut_by_its_bytes_and_has_at_least_one() {
        let half = "x".repeat(PAGE_BYTES_MAX / 2);
        let whole = "x".repeat(PAGE_BYTES_MAX + 1);
        assert_eq!(cut(vec![String::new(), String::new()]), (vec![String::new(); 2], false));
        let (kept, has_more) = cut(vec![half.clone(), half.clone(), half]);
        assert_eq!((kept.len(), has_more), (1, true), "with what each is told by");
        let (kept, has_more) = cut(vec![whole]);
        assert_eq!((kept.len(), has_more), (1, false));
        assert_eq!(cut(Vec::<String>::new()), (Vec::new(), false));
    }
}
