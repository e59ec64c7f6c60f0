//! What one tenant asked for lately.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;
use windlass::Tenant;
use windlass::store::{Quota, Store};

use super::Excess;
use super::bucket::Bucket;

/// How often the backlog of a tenant is looked at. Between two looks, what this server starts is
/// added to it.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often if the last look saw room, and what was started since may have been done since.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// What one tenant asked for lately.
pub(super) struct Meter {
    tenant: Tenant,
    counts: Mutex<Counts>,
    /// Held by whoever looks at the backlog: once is enough.
    looking: tokio::sync::Mutex<()>,
    /// Held by whoever puts a schedule.
    scheduling: Arc<tokio::sync::Mutex<()>>,
}

struct Counts {
    starts: Bucket,
    bytes: Bucket,
    /// When the newest look at the backlog began, and what it saw.
    seen: Option<(Instant, u64)>,
    /// Starts that were let in and not answered yet: a look may or may not see them.
    under_way: u64,
    /// Starts that were answered since the newest look began.
    since: u64,
}

impl Counts {
    /// How much of the tenant's is ready, as far as is known here.
    fn backlog(&self) -> u64 {
        self.seen.map_or(0, |(_, seen)| seen) + self.under_way + self.since
    }

    /// How long it is until someone is to look: who has as much as it may have is looked at
    /// rarely, whatever it asks for.
    fn look_after(&self, most: u32) -> Duration {
        let Some((at, seen)) = self.seen else { return Duration::ZERO };
        let most = u64::from(most);
        let every = match seen < most && self.backlog() >= most {
            true => LOOK_AGAIN_AFTER,
            false => LOOK_EVERY,
        };
        every.saturating_sub(at.elapsed())
    }
}

impl Meter {
    pub(super) fn new(tenant: &Tenant) -> Self {
        let (starts, bytes) = (Bucket::new(), Bucket::new());
        Meter {
            tenant: tenant.clone(),
            counts: Mutex::new(Counts { starts, bytes, seen: None, under_way: 0, since: 0 }),
            looking: tokio::sync::Mutex::default(),
            scheduling: Arc::default(),
        }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nothing is lost if it is forgotten.
    pub(super) fn is_quiet(&self) -> bool {
        let (counts, now) = (self.counts(), Instant::now());
        counts.under_way == 0 && counts.starts.is_quiet(now) && counts.bytes.is_quiet(now)
    }

    /// Lets so many starts in with so many bytes in all, or none. The rates are asked first: who is
    /// over them costs no query.
    pub(super) async fn admit(
        self: &Arc<Self>,
        store: &dyn Store,
        quota: &Quota,
        count: usize,
        bytes: usize,
    ) -> Result<Admitted, Excess> {
        self.check_rates(&self.counts(), quota, count, bytes)?;
        if let Some(most) = quota.backlog_max {
            self.look(store, most).await?;
        }
        let mut counts = self.counts();
        self.check_rates(&counts, quota, count, bytes)?;
        if let Some(most) = quota.backlog_max
            && counts.backlog() + count as u64 > u64::from(most)
        {
            let (tenant, has) = (&self.tenant, counts.backlog());
            let why = format!("tenant {tenant:?} has {has} tasks that wait, its quota is {most}");
            let why =
                if count == 1 { why } else { format!("{why}, and {count} more are asked for") };
            let retry_after = counts.look_after(most).max(Duration::from_millis(1));
            return Err(Excess::Limited { why, retry_after });
        }
        let now = Instant::now();
        if let Some(rate) = quota.starts_per_second {
            counts.starts.take(rate, count, now);
        }
        if let Some(rate) = quota.payload_bytes_per_second {
            counts.bytes.take(rate, bytes, now);
        }
        counts.under_way += count as u64;
        Ok(Admitted { meter: Arc::clone(self), count: count as u64 })
    }

    /// Refuses whoever is over the rate of starts. Takes nothing.
    pub(super) fn check(&self, quota: &Quota) -> Result<(), Excess> {
        self.check_rates(&self.counts(), quota, 1, 0)
    }

    /// Lets so many bytes in, or not.
    pub(super) fn admit_bytes(&self, quota: &Quota, bytes: usize) -> Result<(), Excess> {
        let mut counts = self.counts();
        self.check_bytes(&counts, quota, bytes)?;
        if let Some(rate) = quota.payload_bytes_per_second {
            counts.bytes.take(rate, bytes, Instant::now());
        }
        Ok(())
    }

    /// Waits for the turn to put a schedule.
    pub(super) async fn schedule_turn(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.scheduling).lock_owned().await
    }

    fn check_rates(
        &self,
        counts: &Counts,
        quota: &Quota,
        count: usize,
        bytes: usize,
    ) -> Result<(), Excess> {
        if let Some(rate) = quota.starts_per_second {
            let checked = counts.starts.check(rate, count, Instant::now());
            checked.map_err(|after| self.over(after, "starts", rate))?;
        }
        self.check_bytes(counts, quota, bytes)
    }

    fn check_bytes(&self, counts: &Counts, quota: &Quota, bytes: usize) -> Result<(), Excess> {
        let Some(rate) = quota.payload_bytes_per_second else { return Ok(()) };
        let checked = counts.bytes.check(rate, bytes, Instant::now());
        checked.map_err(|after| self.over(after, "bytes of inputs and signals", rate))
    }

    fn over(&self, retry_after: Duration, what: &str, rate: u32) -> Excess {
        let tenant = &self.tenant;
        let why = format!("tenant {tenant:?} is over its quota of {rate} {what} per second");
        Excess::Limited { why, retry_after }
    }

    /// Looks at the backlog if that is due and nobody does.
    async fn look(&self, store: &dyn Store, most: u32) -> Result<(), Excess> {
        let (is_due, was_seen) = {
            let counts = self.counts();
            (counts.look_after(most).is_zero(), counts.seen.is_some())
        };
        if !is_due {
            return Ok(());
        }
        // What was seen a moment ago is better than waiting for who looks.
        let looking = match was_seen {
            true => self.looking.try_lock().ok(),
            false => Some(self.looking.lock().await),
        };
        if looking.is_none() || !self.counts().look_after(most).is_zero() {
            return Ok(());
        }
        let began = Instant::now();
        let before = self.counts().since;
        // What is beyond the quota need not be counted.
        let usage = store.get_usage(self.tenant.clone(), most).await?;
        let mut counts = self.counts();
        counts.seen = Some((began, u64::from(usage.ready_tasks)));
        counts.since -= before;
        Ok(())
    }
}

/// Starts that were let in, until the store has answered.
pub(crate) struct Admitted {
    meter: Arc<Meter>,
    count: u64,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut counts = self.meter.counts();
        counts.under_way -= self.count;
        counts.since += self.count;
    }
}
