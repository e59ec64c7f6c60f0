//! Batches: how much goes together, and what of it goes at all.

use super::{Answer, Refusal, StoreError};

/// The most items of one batch: runs to start, tasks to claim, completions to
/// apply, timers to promote.
pub const BATCH_MAX: usize = 10_000;

/// The most bytes of inputs or outputs in one batch that has more than one of them: it must
/// be stored in a fraction of a lease.
pub(crate) const BATCH_BYTES_MAX: usize = 16 << 20;

/// How many items go together: up to `most`, with no more bytes than [`BATCH_BYTES_MAX`],
/// and at least one.
pub(crate) fn batch_len(bytes: impl IntoIterator<Item = usize>, most: usize) -> usize {
    let mut total = 0_usize;
    let fits = |(place, bytes): &(usize, usize)| {
        total = total.saturating_add(*bytes);
        *place == 0 || total <= BATCH_BYTES_MAX
    };
    bytes.into_iter().take(most.max(1)).enumerate().take_while(fits).count()
}

/// Refuses a batch over the limit.
pub(crate) fn check_batch(len: usize) -> Result<(), StoreError> {
    if len > BATCH_MAX {
        let text = format!("a batch of {len} is over the limit of {BATCH_MAX}");
        return Err(StoreError::Conflict(text));
    }
    Ok(())
}

/// Which of a batch are to be kept: the others are refused as they come.
pub(crate) struct Places(Vec<bool>);

impl Places {
    /// The answers to the whole batch, by those to what of it was to be kept.
    pub(crate) fn answers(self, kept: Vec<Answer>) -> Vec<Answer> {
        let mut kept = kept.into_iter();
        let refused = Answer::Refused(Refusal::Invalid);
        let answer = |fits: bool| if fits { kept.next() } else { Some(refused) };
        self.0.into_iter().map_while(answer).collect()
    }
}

/// What of a batch is not too large.
pub(crate) fn fitting<T>(mut batch: Vec<T>, is_large: impl Fn(&T) -> bool) -> (Vec<T>, Places) {
    let fits: Vec<bool> = batch.iter().map(|one| !is_large(one)).collect();
    let mut places = fits.iter();
    batch.retain(|_| places.next().copied().unwrap_or(true));
    (batch, Places(fits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_cut_by_count_and_by_bytes_and_has_at_least_one() {
        assert_eq!(batch_len([1; 10], 4), 4);
        assert_eq!(batch_len([1; 3], 4), 3);
        assert_eq!(batch_len([BATCH_BYTES_MAX / 2; 3], 4), 2);
        assert_eq!(batch_len([BATCH_BYTES_MAX + 1, 1], 4), 1);
        assert_eq!(batch_len([1, BATCH_BYTES_MAX, 1], 4), 1);
        assert_eq!(batch_len([usize::MAX, usize::MAX], 4), 1);
        assert_eq!(batch_len([], 4), 0);
    }
}
