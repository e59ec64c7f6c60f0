//! What one sweep starts, and what it does not.

use windlass_core::schedule::{Cadence, Missed};
use windlass_core::{RunId, Timestamp};

use super::super::bench::{Bench, seconds, tenant};
use super::key;
use crate::store::{FireResult, NOMINAL_METADATA, StoreError};

pub(crate) async fn what_is_due_at_once_starts_in_order(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let from = bench.now().await;
    for (name, step) in [("c", 10), ("a", 1), ("b", 7)] {
        let mut schedule = bench.every_ten(name).await;
        schedule.timing.cadence = Cadence::every_from(seconds(step), from).expect("it is one");
        bench.put(schedule).await;
    }
    bench.advance(seconds(55)).await;
    assert_eq!(bench.fire().await, 5 + 55 + 7);
    let mut nominal: Vec<Timestamp> = Vec::new();
    for task in bench.worker().await.claim(100).await {
        let text = &bench.run(task.task.run).await.metadata[NOMINAL_METADATA];
        nominal.push(text.parse().expect("it is a time"));
    }
    assert_eq!(nominal.len(), 67);
    assert!(nominal.is_sorted(), "{nominal:?}");
}

pub(crate) async fn what_was_missed_for_years_is_one_line(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let from = bench.now().await;
    let mut schedule = bench.every_ten("s").await;
    schedule.timing.cadence = Cadence::every_from(seconds(1), from).expect("it is a cadence");
    schedule.timing.missed = Missed::Once;
    schedule.timing.grace = seconds(2);
    bench.put(schedule).await;
    let years = 5 * 365 * 86_400;
    bench.advance(seconds(years)).await;
    assert_eq!(bench.fire().await, 5);
    let missed = years - 4;
    let mut lines = vec![format!("1-{missed} missed {missed}")];
    lines.extend((missed + 1..=years).map(|second| format!("{second} started")));
    assert_eq!(bench.fires("s", from).await, lines);
}

pub(crate) async fn a_run_id_that_another_tenant_took_is_refused(bench: &Bench<'_>) {
    bench.register("w", "a").await;
    let from = bench.now().await;
    let made = bench.put(bench.every_ten("s").await).await;
    let first = RunId::of_fire(made.id, from + seconds(10));
    let mut start = made.schedule.start(first, from + seconds(10));
    start.tenant = tenant("other");
    bench.try_start(start).await.expect("nobody has it");
    bench.advance(seconds(20)).await;
    bench.fire().await;
    assert_eq!(bench.fires("s", from).await, ["10 refused", "20 started"]);
    let fires = bench.store.list_fires(key("s"), 10).await.expect("reading works");
    let FireResult::Refused(reason) = &fires[1].result else { panic!("{fires:?}") };
    assert_eq!(*reason, format!("run {first} is there already, and is another's"));
    let (begin, end) = (from + seconds(1), from + seconds(20));
    let backfill = bench.store.backfill_schedule(key("s"), begin, end).await;
    assert!(matches!(backfill, Err(StoreError::Conflict(_))), "{backfill:?}");
}
