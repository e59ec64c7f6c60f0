//! One breach of every promise that the auditor checks, made by hand.

/// Something that is made wrong in a database that was right.
pub(crate) struct Violation {
    /// The checks that find it and no others; the first is the one that it is for.
    pub(crate) found_by: &'static [&'static str],
    /// The workflow whose run an example names, or else a word of the example.
    pub(crate) names: &'static str,
    pub(crate) sql: &'static str,
    /// What makes the tables themselves as they were; empty if only rows are changed.
    pub(crate) undo: &'static str,
}

const fn violation(
    found_by: &'static [&'static str],
    names: &'static str,
    sql: &'static str,
) -> Violation {
    Violation { found_by, names, sql, undo: "" }
}

const fn schema_violation(
    found_by: &'static [&'static str],
    names: &'static str,
    sql: &'static str,
    undo: &'static str,
) -> Violation {
    Violation { found_by, names, sql, undo }
}

const MAKE_RUNS_KEY: &str = "drop index windlass.runs_key;
     create unique index runs_key on windlass.runs (tenant, workflow, key) where key is not null";

/// In the order of the checks. `pg_temp.run` is the first run of a workflow. Tasks of the
/// orders are 0 charge, 1 window (a sleep), 2 ship, 3 apologise (on failure).
pub(crate) const VIOLATIONS: &[Violation] = &[
    violation(
        &["G1.place"],
        "backoff",
        "delete from windlass.timers where run_id = pg_temp.run('backoff')",
    ),
    // A task that stands in two places.
    violation(
        &["G1.place"],
        "fresh",
        "insert into windlass.timers (run_id, idx, due, seq, fence, attempt, max_attempts)
         select run_id, idx, 'infinity', 0, fence, attempt, max_attempts
         from windlass.ready where run_id = pg_temp.run('fresh')",
    ),
    violation(
        &["G1.no-other-place"],
        "paid",
        "insert into windlass.timers (run_id, idx, due, seq, fence, attempt, max_attempts,
             answered_fence, answered_verb)
         select run_id, idx, 'infinity', 0, fence, attempt, max_attempts, answered_fence,
             answered_verb
         from windlass.tasks where run_id = pg_temp.run('paid') and idx = 0",
    ),
    violation(&["G1.unblocked"], "staged", "delete from windlass.staged"),
    // Tasks that were lost before anything was written of them.
    violation(
        &["G1.unblocked", "G2.state"],
        "fresh",
        "delete from windlass.ready where run_id = pg_temp.run('fresh')",
    ),
    violation(
        &["G1.unblocked", "G2.state", "G8.parents"],
        "waiting",
        "delete from windlass.timers where run_id = pg_temp.run('waiting')",
    ),
    violation(
        &["G1.staged"],
        "staged",
        "insert into windlass.staged (run_id) values (pg_temp.run('staged'))",
    ),
    violation(
        &["G1.staged"],
        "fresh",
        "insert into windlass.staged (run_id) values (pg_temp.run('fresh'))",
    ),
    violation(
        &["G1.staged-late"],
        "staged",
        "update windlass.runs set created_at = created_at - interval '1 hour'
         where workflow = 'staged'",
    ),
    violation(
        &["G2.edges"],
        "paid",
        "update windlass.events set kind = 'failed'
         where run_id = pg_temp.run('paid') and idx = 2 and kind = 'succeeded'",
    ),
    violation(
        &["G2.chain"],
        "paid",
        "update windlass.events set from_state = 'pending'
         where run_id = pg_temp.run('paid') and idx = 0 and from_state = 'scheduled'",
    ),
    // The sleep is over, begins anew and is over again.
    violation(
        &["G2.one-end"],
        "paid",
        r#"insert into windlass.events (id, run_id, at, kind, idx, from_state, to_state, fence,
             attempt, detail)
         select e.id + 4096 * m.step, e.run_id, e.at, m.kind, 1, m.from_state, m.to_state, 0, 0, m.detail
         from windlass.events e,
             (values
                 (1, 'reset', 'succeeded', 'pending', null),
                 (2, 'sleeping', 'pending', 'scheduled', '{"until":0}'::json),
                 (3, 'woken', 'scheduled', 'succeeded', null)
             ) m (step, kind, from_state, to_state, detail)
         where e.run_id = pg_temp.run('paid') and e.kind = 'woken'"#,
    ),
    violation(
        &["G2.state"],
        "paid",
        "update windlass.tasks set state = 'succeeded'
         where run_id = pg_temp.run('paid') and idx = 3",
    ),
    violation(
        &["G2.tasks-kind"],
        "waiting",
        r#"update windlass.definitions
         set body = replace(body::text, '{"sleep":{"secs":86400,"nanos":0}}', '"handler"')::json
         where workflow = 'waiting';
         update windlass.definition_tasks t set kind = 'handler'
         from windlass.definitions d
         where d.id = t.definition_id and d.workflow = 'waiting' and t.idx = 1"#,
    ),
    violation(
        &["G2.run-edges"],
        "paid",
        "update windlass.events set kind = 'run_cancelled'
         where run_id = pg_temp.run('paid') and kind = 'run_ended'",
    ),
    violation(
        &["G2.run-chain"],
        "mended",
        "delete from windlass.events where run_id = pg_temp.run('mended') and kind = 'run_ended'",
    ),
    violation(
        &["G2.run-state"],
        "declined",
        "update windlass.events set to_state = 'succeeded'
         where run_id = pg_temp.run('declined') and kind = 'run_ended'",
    ),
    violation(
        &["G2.rounds"],
        "paid",
        "update windlass.runs set round = 7 where id = pg_temp.run('paid')",
    ),
    // The run ends before its last task does.
    violation(
        &["G2.while-running"],
        "paid",
        "with gone as (
             delete from windlass.events
             where run_id = pg_temp.run('paid') and kind = 'run_ended'
             returning id, run_id, at, kind, from_state, to_state
         )
         insert into windlass.events (id, run_id, at, kind, from_state, to_state)
         select id - 11 * 4096, run_id, at, kind, from_state, to_state from gone",
    ),
    violation(
        &["G2.times"],
        "returned",
        "update windlass.events set at = at - interval '1 day'
         where run_id = pg_temp.run('returned') and kind = 'released'",
    ),
    // Another start with the same fence, and so another completion of it.
    violation(
        &["G3.one-completion", "G4.fences"],
        "returned",
        "insert into windlass.events (run_id, at, kind, idx, from_state, to_state, fence, attempt)
         select run_id, at, kind, idx, from_state, to_state, fence, attempt
         from windlass.events
         where run_id = pg_temp.run('returned') and kind in ('started', 'released')
         order by id",
    ),
    violation(
        &["G3.newest-fence"],
        "paid",
        "update windlass.events set fence = 0
         where run_id = pg_temp.run('paid') and kind = 'queued' and fence = 1",
    ),
    violation(
        &["G3.answered"],
        "paid",
        "update windlass.tasks set answered_fence = 99
         where run_id = pg_temp.run('paid') and idx = 2",
    ),
    violation(
        &["G3.answered"],
        "returned",
        "update windlass.ready set answered_verb = 'finish'
         where run_id = pg_temp.run('returned')",
    ),
    violation(
        &["G3.outputs"],
        "paid",
        "update windlass.task_rows set output = '1'
         where run_id = pg_temp.run('paid') and idx = 1",
    ),
    // The third start has the fence of the second, which ran out.
    violation(
        &["G4.fences"],
        "paid",
        "update windlass.events set fence = 2
         where run_id = pg_temp.run('paid') and idx = 0 and fence = 3;
         update windlass.tasks set fence = 2, answered_fence = 2
         where run_id = pg_temp.run('paid') and idx = 0",
    ),
    violation(
        &["G4.stored"],
        "returned",
        "update windlass.ready set fence = 5 where run_id = pg_temp.run('returned')",
    ),
    // The sleep begins before the task it waits for has ended.
    violation(&["G5.slots"], "lane", "update windlass.lanes set held = 2"),
    // The slot of a task that has ended is never free again.
    violation(
        &["G5.places"],
        "limited",
        "insert into windlass.lane_places (run_id, idx, limit_id, tenant_id, key, seq, slots)
         values (pg_temp.run('limited'), 0, 999, 0, '', 1, 1)",
    ),
    // A task that may run without a slot.
    violation(
        &["G5.places", "G5.slots"],
        "limited",
        "delete from windlass.lane_places p using windlass.ready q
         where q.run_id = p.run_id and q.idx = p.idx",
    ),
    violation(&["G6.first", "G5.slots"], "limited", "update windlass.lanes set held = 0"),
    violation(
        &["G7.parents"],
        "waiting",
        "with gone as (
             delete from windlass.events
             where run_id = pg_temp.run('waiting') and kind = 'sleeping'
             returning id, run_id, at, kind, idx, from_state, to_state, fence, attempt, detail
         )
         insert into windlass.events (id, run_id, at, kind, idx, from_state, to_state, fence,
             attempt, detail)
         select id - 11 * 4096, run_id, at, kind, idx, from_state, to_state, fence, attempt, detail
         from gone",
    ),
    // A task that runs although its trigger does not want it.
    violation(
        &["G7.parents"],
        "half-failed",
        r#"update windlass.definitions
         set body = replace(body::text, '"any_failed"', '"none_failed"')::json
         where workflow = 'half-failed'"#,
    ),
    // A task that was skipped although its trigger wants it.
    violation(
        &["G7.parents"],
        "half-failed",
        r#"update windlass.definitions
         set body = replace(body::text, '"none_failed"', '"all_finished"')::json
         where workflow = 'half-failed'"#,
    ),
    violation(
        &["G8.open-tasks"],
        "fresh",
        "update windlass.runs set open_tasks = 2 where id = pg_temp.run('fresh')",
    ),
    violation(
        &["G8.failed-tasks"],
        "paid",
        "update windlass.runs set failed_tasks = 1 where id = pg_temp.run('paid')",
    ),
    violation(
        &["G8.parents"],
        "half-failed",
        "update windlass.tasks set failed_parents = 2
         where run_id = pg_temp.run('half-failed') and idx = 3",
    ),
    violation(
        &["G8.parents"],
        "fresh",
        "update windlass.tasks set pending_parents = 2
         where run_id = pg_temp.run('fresh') and idx = 1",
    ),
    violation(
        &["G8.parents"],
        "half-skipped",
        "update windlass.tasks set skipped_parents = 0
         where run_id = pg_temp.run('half-skipped') and idx = 3",
    ),
    // One of two parents has ended, which nothing says any more.
    violation(
        &["G8.parents"],
        "split-open",
        "delete from windlass.task_rows where run_id = pg_temp.run('split-open') and idx = 3",
    ),
    // A task that was made ready before its parents have ended.
    violation(
        &["G8.parents", "G2.state"],
        "fresh",
        "insert into windlass.timers (run_id, idx, due, seq, fence, attempt, max_attempts)
         values (pg_temp.run('fresh'), 1, 'infinity', 0, 0, 0, 5)",
    ),
    violation(
        &["G8.verdict"],
        "paid",
        "update windlass.runs set state = 'failed' where id = pg_temp.run('paid');
         update windlass.events set to_state = 'failed'
         where run_id = pg_temp.run('paid') and kind = 'run_ended'",
    ),
    violation(
        &["G8.open-run"],
        "paid",
        "update windlass.runs set state = 'running', ended_at = null
         where id = pg_temp.run('paid');
         delete from windlass.events where run_id = pg_temp.run('paid') and kind = 'run_ended'",
    ),
    violation(
        &["G8.dead-letters"],
        "half-failed",
        "delete from windlass.dead_letters where run_id = pg_temp.run('half-failed')",
    ),
    violation(
        &["G8.dead-letters"],
        "paid",
        r#"insert into windlass.dead_letters (run_id, idx, round, version, attempts, failed_at,
             tenant, workflow, task, queue, reason, failure)
         select r.id, 0, r.round, 1, 1, now(), r.tenant, r.workflow, 'charge', 'default', 'error',
             '{"code":"error","message":"no","is_retryable":true}'
         from windlass.runs r where r.id = pg_temp.run('paid')"#,
    ),
    // It was discarded, but before it failed.
    violation(
        &["G8.dead-letters"],
        "half-failed",
        "delete from windlass.dead_letters where run_id = pg_temp.run('half-failed');
         insert into windlass.operator_log (id, at, operator, action, runs)
         select gen_random_uuid(), r.ended_at - interval '1 second', 'anna', 'discard', array[r.id]
         from windlass.runs r where r.id = pg_temp.run('half-failed')",
    ),
    violation(
        &["G8.dead-letters"],
        "half-failed",
        "update windlass.dead_letters set round = 7 where run_id = pg_temp.run('half-failed')",
    ),
    violation(
        &["G9.attempts"],
        "returned",
        "update windlass.events set attempt = 2
         where run_id = pg_temp.run('returned') and kind = 'started'",
    ),
    // The first round had two starts.
    violation(
        &["G9.bound"],
        "mended",
        r#"update windlass.definitions
         set body = replace(body::text, '"attempts":2', '"attempts":1')::json
         where workflow = 'mended';
         update windlass.definition_tasks t set max_attempts = 1
         from windlass.definitions d
         where d.id = t.definition_id and d.workflow = 'mended' and t.idx = 2;
         update windlass.leases set max_attempts = 1 where run_id = pg_temp.run('mended')"#,
    ),
    violation(
        &["G9.stored"],
        "returned",
        "update windlass.ready set attempt = 1 where run_id = pg_temp.run('returned')",
    ),
    violation(
        &["G9.policy"],
        "fresh",
        "update windlass.ready set max_attempts = 9 where run_id = pg_temp.run('fresh')",
    ),
    violation(
        &["G10.holder"],
        "mended",
        "update windlass.leases set worker_id = gen_random_uuid()
         where run_id = pg_temp.run('mended')",
    ),
    violation(
        &["G10.holder"],
        "mended",
        "update windlass.workers w set state = 'dead'
         from windlass.leases l where l.worker_id = w.id",
    ),
    violation(
        &["G10.claims"],
        "mended",
        "update windlass.leases set claim_seq = 999 where run_id = pg_temp.run('mended')",
    ),
    violation(
        &["G10.early"],
        "paid",
        "update windlass.events
         set detail = jsonb_set(detail::jsonb, '{lease_until}',
             to_jsonb((detail ->> 'lease_until')::bigint + 86400000000))::json
         where run_id = pg_temp.run('paid') and kind = 'lease_expired'",
    ),
    violation(
        &["G10.leases-late"],
        "mended",
        "update windlass.pulses p set lease_until = lease_until - interval '200 days'
         from windlass.leases l where l.worker_id = p.worker_id",
    ),
    violation(
        &["G11.early"],
        "paid",
        "update windlass.events
         set detail = jsonb_set(detail::jsonb, '{until}',
             to_jsonb((detail ->> 'until')::bigint + 1))::json
         where run_id = pg_temp.run('paid') and kind = 'retrying'",
    ),
    violation(
        &["G11.early"],
        "paid",
        "update windlass.events
         set detail = jsonb_set(detail::jsonb, '{until}',
             to_jsonb((detail ->> 'until')::bigint + 1))::json
         where run_id = pg_temp.run('paid') and kind = 'sleeping'",
    ),
    violation(
        &["G11.due"],
        "backoff",
        "update windlass.events set detail = null
         where run_id = pg_temp.run('backoff') and kind = 'retrying'",
    ),
    violation(
        &["G11.stored"],
        "deferred",
        "update windlass.timers set due = due - interval '1 microsecond'
         where run_id = pg_temp.run('deferred')",
    ),
    violation(
        &["G11.timers-late"],
        "backoff",
        "update windlass.timers set due = due - interval '1 hour'
         where run_id = pg_temp.run('backoff');
         update windlass.events
         set detail = jsonb_set(detail::jsonb, '{until}',
             to_jsonb((detail ->> 'until')::bigint - 3600000000))::json
         where run_id = pg_temp.run('backoff') and kind = 'retrying'",
    ),
    schema_violation(
        &["G12.index"],
        "not unique",
        "drop index windlass.runs_key;
         create index runs_key on windlass.runs (tenant, workflow, key) where key is not null",
        MAKE_RUNS_KEY,
    ),
    schema_violation(
        &["G12.index"],
        "tenant, key",
        "drop index windlass.runs_key;
         create unique index runs_key on windlass.runs (tenant, key) where key is not null",
        MAKE_RUNS_KEY,
    ),
    violation(
        &["G12.keys"],
        "fresh",
        "update windlass.runs set key = 'kept' where id = pg_temp.run('fresh');
         insert into windlass.kept_keys (tenant, workflow, key, run_id, expires_at, input)
         select r.tenant, r.workflow, r.key, gen_random_uuid(), 'infinity', r.input
         from windlass.runs r where r.id = pg_temp.run('fresh')",
    ),
    schema_violation(
        &["G12.keys", "G12.index"],
        "fresh",
        "drop index windlass.runs_key;
         create index runs_key on windlass.runs (tenant, workflow, key) where key is not null;
         update windlass.runs set tenant = 'core', key = 'one' where workflow = 'fresh';
         insert into windlass.tenants (name) values ('core');
         update windlass.ready q set tenant_id = t.id
         from windlass.tenants t, windlass.runs r
         where t.name = 'core' and r.id = q.run_id and r.workflow = 'fresh';
         update windlass.ready q set tag = q.seq
         from windlass.runs r where r.id = q.run_id and r.workflow = 'fresh'",
        MAKE_RUNS_KEY,
    ),
    violation(
        &["G14.order"],
        "dozing",
        "update windlass.steps set number = 1 where run_id = pg_temp.run('dozing') and call = 2",
    ),
    violation(
        &["G14.waits"],
        "listening",
        "delete from windlass.steps where run_id = pg_temp.run('listening') and number is null",
    ),
    violation(
        &["G14.waits"],
        "listening",
        "update windlass.signals set name = 'go' where run_id = pg_temp.run('listening')",
    ),
    violation(
        &["G14.keys"],
        "expecting",
        "delete from windlass.key_waiters where run_id = pg_temp.run('expecting')",
    ),
    // It would be told of signals to another key.
    violation(
        &["G14.keys"],
        "expecting",
        "update windlass.key_waiters set key = 'pay_2' where run_id = pg_temp.run('expecting')",
    ),
    // It is told although it waits for nothing any more.
    violation(
        &["G14.keys"],
        "listening",
        "insert into windlass.key_waiters (run_id, idx, call, tenant, key, name)
         values (pg_temp.run('listening'), 0, 3, 'acme', 'pay_1', 'go')",
    ),
    violation(
        &["G14.keys"],
        "expecting",
        "update windlass.key_waiters set is_told = true
         where run_id = pg_temp.run('expecting')",
    ),
    // A signal that came while it was parked, and that nobody told it of.
    violation(
        &["G14.keys"],
        "expecting",
        "update windlass.key_signals set name = 'go' where name = 'early'",
    ),
    // Each makes a schedule that contradicts itself.
    violation(
        &["G15.times"],
        "which it fires next",
        "with made as (
             insert into windlass.schedules (
                 tenant, name, workflow, version, priority, state, cadence, missed, overlap,
                 jitter_micros, grace_micros, created_at, next_at, due_at, input
             )
             values (
                 'acme', 'nightly', 'w', 1, 0, 'active', '{\"every_micros\":1000000}', 'skip', 'allow',
                 0, 1000000, now(), now(), now(), '0'
             )
             returning id
         )
         insert into windlass.schedule_fires (schedule_id, nominal_at, at, by, result)
         select m.id, now() + interval '1 hour', now(), 'time', 'overlapped' from made m",
    ),
    violation(
        &["G15.times"],
        "its last time is",
        "with made as (
             insert into windlass.schedules (
                 tenant, name, workflow, version, priority, state, cadence, missed, overlap,
                 jitter_micros, grace_micros, created_at, next_at, due_at, last_at, input
             )
             values (
                 'acme', 'nightly', 'w', 1, 0, 'active', '{\"every_micros\":1000000}', 'skip', 'allow',
                 0, 1000000, now(), now(), now(), now() - interval '1 hour', '0'
             )
             returning id
         )
         insert into windlass.schedule_fires (schedule_id, nominal_at, at, by, result)
         select m.id, now() - interval '1 minute', now(), 'time', 'overlapped' from made m",
    ),
    violation(
        &["G15.runs"],
        "is not there",
        "with made as (
             insert into windlass.schedules (
                 tenant, name, workflow, version, priority, state, cadence, missed, overlap,
                 jitter_micros, grace_micros, created_at, next_at, due_at, last_at, input
             )
             values (
                 'acme', 'nightly', 'w', 1, 0, 'active', '{\"every_micros\":1000000}', 'skip', 'allow',
                 0, 1000000, now(), now(), now(), now() - interval '1 hour', '0'
             )
             returning id
         )
         insert into windlass.schedule_fires (schedule_id, nominal_at, at, by, result, run_id)
         select m.id, now() - interval '1 hour', now(), 'time', 'started', gen_random_uuid()
         from made m",
    ),
    violation(
        &["G15.runs"],
        "of schedule nightly",
        "with made as (
             insert into windlass.schedules (
                 tenant, name, workflow, version, priority, state, cadence, missed, overlap,
                 jitter_micros, grace_micros, created_at, next_at, due_at, last_at, input
             )
             values (
                 'acme', 'nightly', 'w', 1, 0, 'active', '{\"every_micros\":1000000}', 'skip', 'allow',
                 0, 1000000, now(), now(), now(), now() - interval '1 hour', '0'
             )
             returning id
         )
         insert into windlass.schedule_fires (schedule_id, nominal_at, at, by, result, run_id)
         select m.id, now() - interval '1 hour', now(), 'time', 'started', pg_temp.run('listening')
         from made m",
    ),
    violation(
        &["G16.leaders"],
        "the duty reap has no row",
        "delete from windlass.leaders where duty = 'reap'",
    ),
    violation(
        &["G16.leaders"],
        "term 3 of promote_due began",
        "update windlass.leaders
         set term = 3, holder = gen_random_uuid(), holder_name = 'one', since = now(),
             renewed_at = now() - interval '1 minute', until = now()
         where duty = 'promote_due'",
    ),
    violation(
        &["G16.leaders"],
        "term 1 of reap was renewed",
        "update windlass.leaders
         set term = 1, holder = gen_random_uuid(), holder_name = 'one', since = now(),
             renewed_at = now(), until = now() - interval '1 minute'
         where duty = 'reap'",
    ),
    violation(
        &["G16.leaders"],
        "rotates",
        "update windlass.leaders
         set term = 1, holder = gen_random_uuid(), holder_name = 'one', since = now(),
             renewed_at = now(), until = now(), rotates_at = now() - interval '1 minute'
         where duty = 'reap'",
    ),
    violation(
        &["G16.leaders"],
        "the duty reap was given up by nobody",
        "update windlass.leaders set is_given_up = true where duty = 'reap'",
    ),
    violation(
        &["queues.counts"],
        "are counted",
        "insert into windlass.queue_changes (level_id, came, went)
         select min(v.id), 3, 0 from windlass.levels v",
    ),
    violation(
        &["G16.duties"],
        "term 1 of duty sweep began",
        "insert into windlass.duties (name, every_micros, next_at, term, holder, holder_name, since, until)
         values ('sweep', 1000000, now() + interval '1 hour', 1, gen_random_uuid(), 'one', now(), now())",
    ),
    violation(
        &["G16.duties"],
        "term 2 of duty sweep began",
        "insert into windlass.duties (name, every_micros, next_at, term, holder, holder_name, since, until)
         values ('sweep', 1000000, now() - interval '1 hour', 2, gen_random_uuid(), 'one', now(),
             now() - interval '1 minute')",
    ),
    violation(
        &["G16.duties"],
        "duty sweep was begun 1 times and ended 2 times",
        "insert into windlass.duties (
             name, every_micros, next_at, term, holder, holder_name, since, runs, last_run_at,
             last_took_micros
         )
         values ('sweep', 1000000, now() + interval '1 hour', 1, gen_random_uuid(), 'one', now(), 2,
             now(), 0)",
    ),
    violation(
        &["G16.duties"],
        "duty sweep is due",
        "insert into windlass.duties (
             name, every_micros, next_at, term, holder, holder_name, since, runs, last_run_at,
             last_took_micros
         )
         values ('sweep', 1000000, now() - interval '1 hour', 1, gen_random_uuid(), 'one', now(), 1,
             now(), 0)",
    ),
    violation(
        &["G16.duties"],
        "duty sweep has 1 errors",
        "insert into windlass.duties (name, every_micros, next_at, errors)
         values ('sweep', 1000000, now(), 1)",
    ),
    violation(
        &["G18.turns"],
        "fresh",
        "update windlass.ready q set tag = 1
         from windlass.runs r where r.id = q.run_id and r.workflow = 'fresh'",
    ),
    violation(&["G18.marks"], "mended", "update windlass.marks set tag = tag - 1000000000"),
    violation(&["G18.marks"], "mended", "delete from windlass.marks"),
    violation(
        &["G18.place"],
        "returned",
        "insert into windlass.tenants (name) values ('core');
         update windlass.ready q set tenant_id = t.id
         from windlass.tenants t where t.name = 'core' and q.run_id = pg_temp.run('returned')",
    ),
    violation(
        &["G18.place"],
        "returned",
        "update windlass.ready q set route_id = a.id
         from windlass.routes a
         where a.workflow = 'fresh' and q.run_id = pg_temp.run('returned')",
    ),
    violation(
        &["G18.place"],
        "returned",
        "update windlass.runs set priority = 5 where id = pg_temp.run('returned')",
    ),
    violation(
        &["rows.definitions"],
        "definition",
        "update windlass.definition_tasks t set parents = 5
         from windlass.definitions d
         where d.id = t.definition_id and d.workflow = 'paid' and t.idx = 2",
    ),
    violation(
        &["rows.definitions"],
        "definition",
        "update windlass.definitions set open_tasks = 5 where workflow = 'paid'",
    ),
    violation(
        &["rows.definition-of-run"],
        "paid",
        "update windlass.runs set definition_id = 999999 where id = pg_temp.run('paid')",
    ),
    violation(
        &["rows.definition-of-run"],
        "paid",
        "update windlass.runs set version = 2 where id = pg_temp.run('paid')",
    ),
    violation(
        &["rows.without-run"],
        "task_rows",
        "insert into windlass.task_rows (run_id, idx, state, fence, attempt, pending_parents,
             failed_parents, skipped_parents)
         values (pg_temp.run('fresh'), 4, 'skipped', 0, 0, 0, 0, 0)",
    ),
    violation(
        &["rows.without-run"],
        "history",
        "insert into windlass.history (run_id, at, lines)
         values (gen_random_uuid(), now(), '- run_started - running - -')",
    ),
    violation(
        &["rows.without-run"],
        "notes",
        "insert into windlass.notes values (pg_temp.run('paid'), 99, 1, '1')",
    ),
    violation(
        &["rows.without-run"],
        "checkpoints",
        "insert into windlass.checkpoints values (pg_temp.run('paid'), 99, 1, '1')",
    ),
    violation(
        &["rows.without-run"],
        "steps",
        "update windlass.steps set idx = 9 where run_id = pg_temp.run('dozing')",
    ),
    violation(
        &["rows.without-run", "G14.keys"],
        "key_waiters",
        "update windlass.key_waiters set run_id = gen_random_uuid()
         where run_id = pg_temp.run('expecting')",
    ),
    violation(
        &["rows.without-run"],
        "signals",
        "update windlass.signals set run_id = gen_random_uuid()
         where run_id = pg_temp.run('dozing')",
    ),
    violation(
        &["rows.checkpoints"],
        "paid",
        "insert into windlass.checkpoints values (pg_temp.run('paid'), 0, 1, '1')",
    ),
    violation(
        &["rows.checkpoints"],
        "backoff",
        "update windlass.checkpoints set fence = 99 where run_id = pg_temp.run('backoff')",
    ),
    schema_violation(
        &["schema.constraints"],
        "a_run_that_ended_has_a_time on windlass.runs does not exist",
        "alter table windlass.runs drop constraint a_run_that_ended_has_a_time",
        "alter table windlass.runs add constraint a_run_that_ended_has_a_time
         check ((state = 'running') = (ended_at is null))",
    ),
    schema_violation(
        &["schema.constraints"],
        "attempts_are_bounded on windlass.leases is not valid",
        "alter table windlass.leases drop constraint attempts_are_bounded;
         alter table windlass.leases
         add constraint attempts_are_bounded check (attempt <= max_attempts) not valid",
        "alter table windlass.leases validate constraint attempts_are_bounded",
    ),
    schema_violation(
        &["schema.indexes"],
        "timers_due",
        "drop index windlass.timers_due",
        "create index timers_due on windlass.timers (due, seq)",
    ),
    schema_violation(
        &["schema.functions"],
        "function windlass.new_run_id() does not exist",
        "alter function windlass.new_run_id() rename to run_id",
        "alter function windlass.run_id() rename to new_run_id",
    ),
    schema_violation(
        &["schema.functions"],
        "is plpgsql volatile set search_path=pg_catalog, pg_temp, not plpgsql volatile security",
        "alter function windlass.start_runs(json) security invoker",
        "alter function windlass.start_runs(json) security definer",
    ),
    schema_violation(
        &["schema.functions"],
        "function windlass.refuse(integer,text,text) is plpgsql volatile, not plpgsql volatile set",
        "alter function windlass.refuse reset search_path",
        "alter function windlass.refuse set search_path = pg_catalog, pg_temp",
    ),
    schema_violation(
        &["schema.functions"],
        "is sql volatile parallel safe, not sql immutable parallel safe",
        "alter function windlass.which volatile",
        "alter function windlass.which immutable",
    ),
    // As `create or replace` leaves it, but so that it can be undone.
    schema_violation(
        &["schema.functions"],
        "function windlass.tell_of_starts() has another body",
        "update pg_proc set prosrc = prosrc || ' ' where proname = 'tell_of_starts'",
        "update pg_proc set prosrc = rtrim(prosrc, ' ') where proname = 'tell_of_starts'",
    ),
    violation(
        &["schema.migrations"],
        "migration 1, windlass, is not noted",
        "delete from windlass.migrations where version = 1",
    ),
    violation(
        &["schema.migrations"],
        "migration 2 is noted as other, not start_run",
        "update windlass.migrations set name = 'other' where version = 2",
    ),
    violation(
        &["schema.migrations"],
        "migration 2, start_run, was applied with another text",
        "update windlass.migrations set checksum = repeat('0', 64) where version = 2",
    ),
];
