//! What many workers say to the store, in few operations.
//!
//! What comes while there is room leaves at once. What comes while all ways are busy gathers,
//! and leaves together when one is free: one commit serves many workers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use tokio::sync::oneshot;
use windlass::store::StoreError;

/// How many operations of one kind are under way at once.
pub(crate) const WAYS: usize = 3;

/// The most items of one operation that is gathered.
const GATHER_MAX: usize = 2_000;

/// The most bytes of one operation that is gathered.
const GATHER_BYTES_MAX: usize = 16 << 20;

type Told<A> = Result<Vec<A>, StoreError>;
type Operation<I, A> = dyn Fn(Vec<I>) -> BoxFuture<'static, Told<A>> + Send + Sync;

/// Items of one worker, and who waits for the answers.
struct Parcel<I, A> {
    items: Vec<I>,
    bytes: usize,
    answer: oneshot::Sender<Told<A>>,
}

struct Waiting<I, A> {
    parcels: VecDeque<Parcel<I, A>>,
    busy: usize,
}

/// Gathers what workers say of one kind.
pub(crate) struct Gather<I, A> {
    operation: Box<Operation<I, A>>,
    /// Whether two items may be said together.
    is_alike: fn(&I, &I) -> bool,
    waiting: Mutex<Waiting<I, A>>,
}

impl<I: Clone + Send + 'static, A: Send + 'static> Gather<I, A> {
    /// For an operation that answers each item, in their order.
    pub(crate) fn new(
        operation: impl Fn(Vec<I>) -> BoxFuture<'static, Told<A>> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Gather::of_alike(|_, _| true, operation)
    }

    /// The same, of which only those go together that are alike.
    pub(crate) fn of_alike(
        is_alike: fn(&I, &I) -> bool,
        operation: impl Fn(Vec<I>) -> BoxFuture<'static, Told<A>> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let waiting = Mutex::new(Waiting { parcels: VecDeque::new(), busy: 0 });
        Arc::new(Gather { operation: Box::new(operation), is_alike, waiting })
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting<I, A>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says the items to the store, with those of others if it is busy. What was begun goes on
    /// if this is dropped.
    pub(crate) async fn tell(self: &Arc<Self>, items: Vec<I>, bytes: usize) -> Told<A> {
        let (answer, answered) = oneshot::channel();
        let is_new = {
            let mut waiting = self.waiting();
            waiting.parcels.push_back(Parcel { items, bytes, answer });
            let has_room = waiting.busy < WAYS;
            waiting.busy += usize::from(has_room);
            has_room
        };
        if is_new {
            tokio::spawn(Way(Arc::clone(self)).work());
        }
        // Nobody answers only if an operation panics or the server ends.
        answered.await.unwrap_or_else(|_| Err(StoreError::Unavailable("the server ends".into())))
    }

    /// A way of one's own, if there is one and no more than so many are taken: for an operation
    /// that does more than gather.
    pub(crate) fn way(self: &Arc<Self>, taken_max: usize) -> Option<Way<I, A>> {
        let mut waiting = self.waiting();
        (waiting.busy < WAYS && waiting.busy <= taken_max).then(|| {
            waiting.busy += 1;
            Way(Arc::clone(self))
        })
    }

    /// What is said next: whole parcels that are alike, at least one.
    fn next(&self) -> Option<Vec<Parcel<I, A>>> {
        let mut waiting = self.waiting();
        let first = waiting.parcels.pop_front()?;
        let (mut items, mut bytes) = (first.items.len(), first.bytes);
        let mut next = vec![first];
        let mut others = VecDeque::with_capacity(waiting.parcels.len());
        while let Some(parcel) = waiting.parcels.pop_front() {
            let is_alike = match (next[0].items.first(), parcel.items.first()) {
                (Some(one), Some(other)) => (self.is_alike)(one, other),
                (None, _) | (_, None) => true,
            };
            let more = (items + parcel.items.len(), bytes.saturating_add(parcel.bytes));
            if is_alike && more.0 <= GATHER_MAX && more.1 <= GATHER_BYTES_MAX {
                (items, bytes) = more;
                next.push(parcel);
            } else {
                others.push_back(parcel);
            }
        }
        waiting.parcels = others;
        Some(next)
    }
}

/// One operation of its kind that may be under way. Dropped, it leaves its place to what waits.
pub(crate) struct Way<I: Clone + Send + 'static, A: Send + 'static>(Arc<Gather<I, A>>);

impl<I: Clone + Send + 'static, A: Send + 'static> Way<I, A> {
    async fn work(self) {
        while let Some(parcels) = self.0.next() {
            let items: Vec<I> = parcels.iter().flat_map(|one| one.items.clone()).collect();
            match self.say(items).await {
                // One that cannot be done must not cost the others'.
                Err(error) if parcels.len() > 1 && !error.is_retryable() => {
                    for parcel in parcels {
                        // Whoever does not wait any more need not know.
                        let _ = parcel.answer.send(self.say(parcel.items).await);
                    }
                }
                answers => {
                    let mut answers = answers.map(Vec::into_iter);
                    for parcel in parcels {
                        let answer = match &mut answers {
                            Ok(answers) => Ok(answers.by_ref().take(parcel.items.len()).collect()),
                            Err(error) => Err(error.clone()),
                        };
                        let _ = parcel.answer.send(answer);
                    }
                }
            }
        }
    }

    async fn say(&self, items: Vec<I>) -> Told<A> {
        let count = items.len();
        let answers = (self.0.operation)(items).await?;
        if answers.len() == count {
            return Ok(answers);
        }
        Err(StoreError::Corrupt(format!("{} answers to {count}", answers.len())))
    }
}

impl<I: Clone + Send + 'static, A: Send + 'static> Drop for Way<I, A> {
    fn drop(&mut self) {
        let goes_on = {
            let mut waiting = self.0.waiting();
            let goes_on = !waiting.parcels.is_empty();
            waiting.busy -= usize::from(!goes_on);
            goes_on
        };
        if goes_on && let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(Way(Arc::clone(&self.0)).work());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn what_comes_while_all_ways_are_busy_shares_the_next() {
        let operations = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&operations);
        let gather = Gather::new(move |items: Vec<usize>| {
            counted.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move {
                tokio::time::sleep(Duration::from_millis(1)).await;
                Ok(items.into_iter().map(|item| item * 2).collect())
            })
        });
        let telling: Vec<_> = (0..100_usize)
            .map(|item| {
                let gather = Arc::clone(&gather);
                tokio::spawn(async move { gather.tell(vec![item, item + 1], 8).await })
            })
            .collect();
        for (item, told) in telling.into_iter().enumerate() {
            assert_eq!(told.await.unwrap(), Ok(vec![item * 2, item * 2 + 2]));
        }
        let operations = operations.load(Ordering::Relaxed);
        assert!(operations <= 2 * WAYS, "{operations} operations");
        assert_eq!(gather.waiting().busy, 0);
    }

    #[tokio::test]
    async fn only_what_is_alike_goes_together_and_all_of_it_goes() {
        let said: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
        let heard = Arc::clone(&said);
        let gather = Gather::of_alike(
            |one: &u8, other: &u8| one % 2 == other % 2,
            move |items: Vec<u8>| {
                heard.lock().unwrap().push(items.clone());
                Box::pin(async move { Ok(items) })
            },
        );
        let way = [gather.way(WAYS), gather.way(WAYS), gather.way(WAYS)];
        let telling: Vec<_> = (0..6_u8)
            .map(|item| {
                let gather = Arc::clone(&gather);
                tokio::spawn(async move { gather.tell(vec![item], 1).await })
            })
            .collect();
        while gather.waiting().parcels.len() < 6 {
            tokio::task::yield_now().await;
        }
        drop(way);
        for (item, told) in telling.into_iter().enumerate() {
            assert_eq!(told.await.unwrap(), Ok(vec![item as u8]));
        }
        let mut said = said.lock().unwrap().clone();
        said.sort();
        assert_eq!(said, [vec![0, 2, 4], vec![1, 3, 5]]);
    }

    #[tokio::test]
    async fn an_error_is_told_to_all_and_the_way_is_free_again() {
        let gather: Arc<Gather<u8, u8>> =
            Gather::new(|_| Box::pin(async { Err(StoreError::Unavailable("gone".into())) }));
        let way = gather.way(0);
        assert!(way.is_some() && gather.way(0).is_none() && gather.way(1).is_some());
        drop(way);
        let told = gather.tell(vec![1], 1).await;
        assert_eq!(told, Err(StoreError::Unavailable("gone".into())));
        assert_eq!(gather.waiting().busy, 0);
    }
}
