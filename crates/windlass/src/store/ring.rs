//! Which buckets are whose: those of the workers that are there and serve them.

use std::collections::HashMap;

use windlass_core::{Bucket, QueueName, Tenant, WorkerId};

use super::HandlerKey;

/// A worker that is there.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) worker: WorkerId,
    pub(super) queues: Vec<QueueName>,
    pub(super) handlers: Vec<HandlerKey>,
    /// The tenant whose tasks alone it claims, if that is so.
    pub(super) tenant: Option<Tenant>,
}

/// The workers that are there, as far as one process knows.
#[derive(Clone, Debug, Default)]
pub(super) struct Ring(Vec<Member>);

impl Ring {
    pub(super) fn new(members: Vec<Member>) -> Self {
        Ring(members)
    }

    /// What a worker owns of what it serves. It is there, whatever the others know: it asks.
    ///
    /// Those who claim for one tenant share among themselves, and those who claim for all among
    /// themselves: what the first leave to others would otherwise be left to nobody.
    pub(super) fn share(&self, worker: WorkerId, tenant: Option<&Tenant>) -> Share<'_> {
        Share { ring: self, worker, tenant: tenant.cloned(), rivals: HashMap::new() }
    }
}

/// What one worker owns.
pub(super) struct Share<'a> {
    ring: &'a Ring,
    worker: WorkerId,
    tenant: Option<Tenant>,
    rivals: HashMap<(QueueName, HandlerKey), Vec<WorkerId>>,
}

impl Share<'_> {
    /// Whether a bucket of what the worker serves is its own.
    pub(super) fn has(&mut self, queue: &QueueName, handler: &HandlerKey, bucket: Bucket) -> bool {
        let rivals = self.rivals.entry((queue.clone(), handler.clone())).or_insert_with(|| {
            let serves = |one: &&Member| {
                one.tenant == self.tenant
                    && one.queues.contains(queue)
                    && one.handlers.contains(handler)
            };
            let others = self.ring.0.iter().filter(serves).map(|one| one.worker);
            others.filter(|one| *one != self.worker).chain([self.worker]).collect()
        });
        bucket.owner(rivals.iter().copied()) == Some(self.worker)
    }
}
