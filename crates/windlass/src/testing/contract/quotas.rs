//! Quotas are kept, and what they are about is counted.

use super::bench::{Bench, seconds, tenant};
use crate::store::{QUOTA_MAX, QUOTAS_MAX, Quota, StoreError, Usage};

impl Bench<'_> {
    async fn quotas(&self) -> Vec<Quota> {
        self.store.list_quotas().await.expect("listing works")
    }

    async fn usage(&self, name: &str, at_most: u32) -> (u32, u32) {
        let usage = self.store.get_usage(tenant(name), at_most).await.expect("counting works");
        let Usage { ready_tasks, schedules } = usage;
        (ready_tasks, schedules)
    }
}

pub(crate) async fn a_quota_is_of_a_tenant_or_of_all_that_have_none(bench: &Bench<'_>) {
    assert_eq!(bench.quotas().await, []);
    let all = Quota { starts_per_second: Some(10), ..Quota::default() };
    let own = Quota {
        tenant: Some(tenant("b")),
        starts_per_second: Some(1),
        backlog_max: Some(2),
        payload_bytes_max: Some(3),
        payload_bytes_per_second: Some(4),
        schedules_max: Some(5),
        tasks_max: Some(QUOTA_MAX),
    };
    let free = Quota::of(Some(tenant("a")));
    for quota in [&own, &all, &free] {
        bench.store.set_quota(quota.clone()).await.expect("it makes sense");
    }
    assert_eq!(bench.quotas().await, [all.clone(), free.clone(), own.clone()]);
    let changed = Quota { backlog_max: None, tasks_max: Some(7), ..own };
    bench.store.set_quota(changed.clone()).await.expect("it makes sense");
    assert_eq!(bench.quotas().await, [all, free.clone(), changed.clone()]);
    assert_eq!(bench.store.clear_quota(None).await, Ok(true));
    assert_eq!(bench.store.clear_quota(None).await, Ok(false));
    assert_eq!(bench.store.clear_quota(Some(tenant("nobody"))).await, Ok(false));
    assert_eq!(bench.quotas().await, [free, changed]);
}

pub(crate) async fn quotas_have_limits(bench: &Bench<'_>) {
    for value in [0, QUOTA_MAX + 1] {
        let quota = Quota { schedules_max: Some(value), ..Quota::default() };
        let refused = bench.store.set_quota(quota).await;
        assert!(matches!(refused, Err(StoreError::Conflict(_))), "{refused:?}");
    }
    let of = |number| Quota::of(Some(tenant(&format!("t{number}"))));
    for number in 0..QUOTAS_MAX {
        bench.store.set_quota(of(number)).await.expect("it makes sense");
    }
    let more = bench.store.set_quota(of(QUOTAS_MAX)).await;
    assert!(matches!(more, Err(StoreError::Conflict(_))), "{more:?}");
    let changed = Quota { tasks_max: Some(1), ..of(7) };
    bench.store.set_quota(changed).await.expect("it is there");
}

pub(crate) async fn what_a_tenant_has_is_counted_up_to_a_limit(bench: &Bench<'_>) {
    bench.register("w", "a b c<a,b").await;
    assert_eq!(bench.usage("x", 10).await, (0, 0));
    bench.start_for("w", "x", 3).await;
    bench.start_for("w", "y", 1).await;
    assert_eq!(bench.usage("x", 10).await, (6, 0), "two of each are ready");
    assert_eq!(bench.usage("y", 10).await, (2, 0));
    assert_eq!(bench.usage("x", 4).await, (4, 0), "what is beyond is not counted");
    assert_eq!(bench.usage("x", 0).await, (0, 0));
    let worker = bench.worker_with_lease(seconds(600)).await;
    let claimed = worker.claim(3).await;
    let of_x = claimed.iter().filter(|task| task.tenant == tenant("x")).count();
    let left = 6 - u32::try_from(of_x).expect("few");
    assert_eq!(bench.usage("x", 10).await, (left, 0), "who is at work does not wait");
}

pub(crate) async fn schedules_of_a_tenant_are_counted(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    for (whose, name) in [("x", "one"), ("x", "two"), ("y", "one")] {
        bench.put_for(whose, name).await;
    }
    assert_eq!(bench.usage("x", 10).await, (0, 2));
    assert_eq!(bench.usage("y", 10).await, (0, 1));
    assert_eq!(bench.usage("x", 1).await, (0, 1));
}
