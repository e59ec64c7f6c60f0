//! Pages of rows that have payloads, bounded by bytes.
//!
//! A store is asked for a number of rows and not for a number of bytes, and one row may have a payload
//! of the largest size. So such a page is read in chunks, until it has enough rows or bytes.

use windlass::PayloadLimit;
use windlass::store::{Child, PAGE_MAX, ScheduleRecord, TaskRecord};
use windlass_core::{StepRecord, StepResult, StepState};

/// The size of the largest page with more than one row, in bytes: one message of the size that gRPC
/// clients accept by default has room for it.
pub(crate) const PAGE_BYTES_MAX: usize = (4 << 20) - (64 << 10);

/// The size of the payloads that a chunk has at most, in bytes, unless one row has more. A row has up
/// to two payloads.
const CHUNK_BYTES_MAX: usize = 16 << 20;

/// The number of rows that a chunk has at most.
const CHUNK_ROWS_MAX: usize = 256;

/// A page while it is read.
pub(crate) struct PageReader<C> {
    chunk_rows: usize,
    bytes_max: usize,
    /// The number of rows that the last chunk was to have.
    asked: usize,
    /// The number of rows that the page still has room for, and the bytes of those it has.
    left: usize,
    bytes: usize,
    /// Where the next chunk begins.
    after: Option<C>,
    is_complete: bool,
}

impl<C> PageReader<C> {
    pub(crate) fn new(limit: usize, payload_limit: PayloadLimit, after: Option<C>) -> Self {
        let chunk_rows = (CHUNK_BYTES_MAX / (2 * payload_limit.get())).clamp(1, CHUNK_ROWS_MAX);
        let left = limit.min(PAGE_MAX);
        let bytes_max = PAGE_BYTES_MAX;
        PageReader { chunk_rows, bytes_max, asked: 0, left, bytes: 0, after, is_complete: false }
    }

    /// The same page, which ends for its rows only.
    pub(crate) fn without_limit_of_bytes(self) -> Self {
        PageReader { bytes_max: usize::MAX, ..self }
    }

    /// Where the next chunk begins and how many rows it is to have, unless the page is complete.
    pub(crate) fn next_chunk(&mut self) -> Option<(Option<C>, usize)> {
        if self.is_complete {
            return None;
        }
        self.asked = self.left.min(self.chunk_rows);
        Some((self.after.take(), self.asked))
    }

    /// Counts a chunk of a list that ends with the first chunk that is shorter than was asked for.
    pub(crate) fn add<T: PayloadBytes>(&mut self, rows: &[T], cursor: impl Fn(&T) -> C) {
        let next = rows.last().filter(|_| rows.len() == self.asked).map(cursor);
        self.add_with_next(rows, next);
    }

    /// Counts a chunk of a list that says where it continues.
    pub(crate) fn add_with_next<T: PayloadBytes>(&mut self, rows: &[T], next: Option<C>) {
        self.left = self.left.saturating_sub(rows.len());
        self.bytes += rows.iter().map(T::payload_bytes).sum::<usize>();
        self.is_complete = next.is_none() || self.left == 0 || self.bytes >= self.bytes_max;
        self.after = next;
    }

    /// Whether the page ended because of its bytes.
    pub(crate) fn is_short(&self) -> bool {
        self.is_complete && self.after.is_some() && self.left > 0
    }

    /// Where the next page begins, unless the list has ended.
    pub(crate) fn end(self) -> Option<C> {
        self.after
    }
}

/// A row with payloads or texts that may be large.
pub(crate) trait PayloadBytes {
    /// The size of all of them together.
    fn payload_bytes(&self) -> usize;
}

impl PayloadBytes for TaskRecord {
    fn payload_bytes(&self) -> usize {
        let payloads = [&self.output, &self.progress].into_iter().flatten();
        payloads.map(|payload| payload.as_str().len()).sum()
    }
}

impl PayloadBytes for StepRecord {
    fn payload_bytes(&self) -> usize {
        match &self.state {
            StepState::Open { .. } => 0,
            StepState::Done { result, .. } => result.bytes(),
        }
    }
}

impl PayloadBytes for Child {
    fn payload_bytes(&self) -> usize {
        self.result.as_ref().map_or(0, StepResult::bytes)
    }
}

impl PayloadBytes for ScheduleRecord {
    fn payload_bytes(&self) -> usize {
        self.schedule.input.as_str().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Row(u32, usize);

    impl PayloadBytes for Row {
        fn payload_bytes(&self) -> usize {
            self.1
        }
    }

    /// A page that was read of numbered rows, and the bytes of its largest chunk.
    #[derive(Debug, PartialEq)]
    struct Page {
        rows: Vec<u32>,
        is_short: bool,
        next: Option<u32>,
        largest: usize,
    }

    /// Reads a page of rows of these sizes.
    fn page(sizes: &[usize], limit: usize) -> Page {
        let mut page = PageReader::new(limit, PayloadLimit::new(1 << 20).unwrap(), None);
        let (mut rows, mut largest) = (Vec::new(), 0);
        while let Some((after, limit)) = page.next_chunk() {
            let first = after.map_or(0, |after: u32| after as usize + 1);
            let numbered = sizes.iter().enumerate().skip(first).take(limit);
            let found: Vec<Row> = numbered.map(|(at, size)| Row(at as u32, *size)).collect();
            page.add(&found, |row| row.0);
            largest = largest.max(found.iter().map(Row::payload_bytes).sum());
            rows.extend(found.iter().map(|row| row.0));
        }
        Page { rows, is_short: page.is_short(), next: page.end(), largest }
    }

    #[test]
    fn a_page_of_small_rows_has_as_many_as_were_asked_for() {
        let whole = page(&[10; 100], 40);
        assert_eq!((whole.rows.len(), whole.is_short, whole.next), (40, false, Some(39)));
        let last = page(&[10; 100], 1_000);
        assert_eq!((last.rows.len(), last.is_short, last.next), (100, false, None));
        let none = Page { rows: Vec::new(), is_short: false, next: None, largest: 0 };
        assert_eq!(page(&[], 10), none);
    }

    #[test]
    fn a_page_without_a_limit_of_bytes_ends_for_its_rows_only() {
        let page = PageReader::new(1_000, PayloadLimit::new(1 << 20).unwrap(), None);
        let mut page = page.without_limit_of_bytes();
        let mut count = 0_usize;
        while let Some((_, limit)) = page.next_chunk() {
            let rows: Vec<Row> = (0..limit).map(|_| Row(0, 1 << 20)).collect();
            count += rows.len();
            page.add(&rows, |row| row.0);
        }
        assert_eq!((count, page.is_short()), (1_000, false));
    }

    #[test]
    fn a_page_of_large_rows_ends_early_and_says_where_the_next_begins() {
        let mut sizes = vec![1; 500];
        sizes.extend([1 << 20; 500]);
        let Page { rows, is_short, next, largest } = page(&sizes, 1_000);
        let bytes: usize = rows.iter().map(|row| sizes[*row as usize]).sum();
        assert!(bytes <= PAGE_BYTES_MAX + CHUNK_BYTES_MAX, "{bytes}");
        assert!(largest <= CHUNK_BYTES_MAX, "{largest}");
        assert!(is_short);
        assert_eq!(next, rows.last().copied());
        assert!(rows.iter().copied().eq(0..rows.len() as u32), "none is left out");
    }
}
