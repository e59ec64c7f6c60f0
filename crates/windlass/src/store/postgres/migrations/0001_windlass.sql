-- The home of Windlass: definitions, runs and their tasks, queues, workers, history.
--
-- A task that has not ended is pending or active. An active task has exactly one row in one
-- of three narrow tables: `ready` (can be claimed), `leases` (a worker runs it) or `timers`
-- (waits for a time). Claiming, finishing and waking move it between them. A task has a row
-- in `task_rows` only if there is something to say of it that its definition and the narrow
-- tables do not: that it has ended, that some but not all of its parents have, that one of
-- them did not succeed, or that it failed before.
-- So starting a run writes no task, and most tasks are written once, when they end. The view
-- `tasks` shows all of them, and the view `task_states` their states by their words.
--
-- What the row in the narrow table carries (fence, attempt, the newest answer to a worker)
-- is newer than what `task_rows` says, and goes there when the task ends.
--
-- Locks are taken in this order: the leader of a duty, a worker, an entry of the operators' log,
-- runs by id, mailboxes, lanes and
-- then turns (advisory, by number), then rows of tasks. A claim takes rows of `ready` without their runs and never
-- waits for them.
--
-- The list of migrations is made before this. Each says from which version on programs may use
-- the schema that it leaves (`works_from`), so that those of two versions work side by side.
--
-- There are no foreign keys on the hot tables: each would look up and lock a row of its
-- parent for every row written. `windlass audit` checks what they would.

create table windlass.definitions (
    id integer generated always as identity primary key,
    workflow text not null check (octet_length(workflow) between 1 and 200),
    version integer not null check (version >= 1),
    -- One more for every registration with other policies; the newest holds for new runs.
    revision integer not null check (revision >= 1),
    body json not null,
    -- How many tasks a new run has open: all but the on-failure task.
    open_tasks integer not null check (open_tasks >= 1),
    registered_at timestamptz not null,
    unique (workflow, version, revision)
);

create table windlass.definition_tasks (
    definition_id integer not null references windlass.definitions (id) on delete cascade,
    idx integer not null check (idx >= 0),
    name text not null check (octet_length(name) between 1 and 200),
    kind text not null check (kind in ('handler', 'sleep', 'on_failure')),
    parents integer not null check (parents >= 0),
    max_attempts integer not null check (max_attempts >= 1),
    primary key (definition_id, idx)
);

-- A lookup by definition and index cannot take this index, which looks as cheap as the primary
-- key while there are few tasks, and would read all of a definition for one.
create unique index definition_tasks_name
    on windlass.definition_tasks (name, (definition_id::bigint));

create table windlass.runs (
    id uuid primary key,
    definition_id integer not null,
    version integer not null check (version >= 1),
    created_at timestamptz not null,
    priority smallint not null default 0 check (priority between -100 and 100),
    workflow text not null check (octet_length(workflow) between 1 and 200),
    tenant text not null check (octet_length(tenant) between 1 and 200),
    -- What changes is side by side: a change logs what lies between the first byte that differs
    -- and the last.
    round integer not null default 1 check (round >= 1),
    failed_tasks integer not null default 0 check (failed_tasks >= 0),
    open_tasks integer not null check (open_tasks >= 0),
    ended_at timestamptz,
    state text not null default 'running'
        check (state in ('running', 'succeeded', 'failed', 'cancelled')),
    key text check (octet_length(key) between 1 and 400),
    metadata jsonb check (jsonb_typeof(metadata) = 'object'),
    -- The keys that its input has in the limits of its definition, in their order; null if
    -- nothing limits it.
    lane_keys json,
    input json not null,
    constraint a_run_that_ended_has_a_time check ((state = 'running') = (ended_at is null)),
    constraint a_run_that_ended_has_no_open_tasks check (state = 'running' or open_tasks = 0)
-- Runs of one batch lie on one page and end in one transaction: only with room for a second
-- version of each of them, which is larger by the time of the end, does that touch no index.
-- Inputs that are not small lie apart, where a change of state does not copy them.
) with (fillfactor = 45, toast_tuple_target = 256);

create unique index runs_key on windlass.runs (tenant, workflow, key) where key is not null;
-- The bytes of the id sort as the id does, and a lookup by id cannot take this index, which
-- looks as cheap as the primary key while the table is empty.
create index runs_by_age on windlass.runs (created_at, uuid_send(id));

create table windlass.task_rows (
    run_id uuid not null,
    idx integer not null check (idx >= 0),
    attempt integer not null check (attempt >= 0),
    fence bigint not null check (fence >= 0),
    -- Counters of parents are null for 0, which takes no room: most tasks wait for none of
    -- theirs when they are written.
    pending_parents integer check (pending_parents >= 0),
    failed_parents integer check (failed_parents >= 0),
    skipped_parents integer check (skipped_parents >= 0),
    -- The newest write of a worker that was applied, to know a repetition by: its fence, null
    -- if that is the task's, and its verb.
    answered_fence bigint,
    state text not null
        check (state in ('pending', 'active', 'succeeded', 'failed', 'cancelled', 'skipped')),
    answered_verb text check (answered_verb in ('finish', 'release')),
    -- Why the newest failed attempt failed.
    failure json,
    -- What it gave when it succeeded, unless that is `null`.
    output json,
    primary key (run_id, idx),
    constraint an_active_task_waits_for_no_parent
        check (state <> 'active' or coalesce(pending_parents, 0) = 0),
    constraint a_failed_task_says_why check (state <> 'failed' or failure is not null),
    constraint only_success_has_an_output check (state = 'succeeded' or output is null)
) with (fillfactor = 90);

-- Tasks that failed for good, until someone redrives or discards them. A row is written with the
-- failure of its task, under the lock of its run, and goes when the run is retried or cancelled.
-- What a list or a filter needs is here, so that neither looks at runs.
create table windlass.dead_letters (
    run_id uuid not null,
    idx integer not null check (idx >= 0),
    round integer not null check (round >= 1),
    version integer not null check (version >= 1),
    attempts integer not null check (attempts >= 0),
    failed_at timestamptz not null,
    tenant text not null check (octet_length(tenant) between 1 and 200),
    workflow text not null check (octet_length(workflow) between 1 and 200),
    task text not null check (octet_length(task) between 1 and 200),
    queue text not null check (octet_length(queue) between 1 and 200),
    -- The code of the failure.
    reason text not null check (octet_length(reason) <= 100),
    failure json not null,
    -- The lanes in which it had slots, or would have had: their limits, tenants and keys.
    lanes json check (json_typeof(lanes) = 'array'),
    primary key (run_id, idx)
);

-- It sorts as the columns would, and a lookup by task cannot take it.
create index dead_letters_by_age
    on windlass.dead_letters (failed_at, uuid_send(run_id), (idx::bigint));

-- What operators did by hand. It only grows. An entry is locked before any run.
create table windlass.operator_log (
    -- Chosen by whoever does it, so that it can be asked for again.
    id uuid primary key,
    number bigint generated always as identity,
    at timestamptz not null,
    operator text not null check (octet_length(operator) between 1 and 200),
    action text not null check (action in (
        'redrive', 'discard', 'retry_run', 'cancel_run', 'undo_run', 'set_weight', 'set_retention',
        'clear_retention', 'put_schedule', 'pause_schedule', 'resume_schedule', 'trigger_schedule',
        'backfill_schedule', 'delete_schedule'
    )),
    -- Whose runs were meant, if one tenant's.
    tenant text check (octet_length(tenant) between 1 and 200),
    -- To which runs it was done.
    runs uuid[] not null default '{}',
    -- What else there is to say: which dead letters were meant, and what was answered.
    detail json
);

create unique index operator_log_by_number on windlass.operator_log (number);
create index operator_log_by_run on windlass.operator_log using gin (runs);

-- What a handler last said of its progress; of an older fence, it is not shown.
create table windlass.notes (
    run_id uuid not null,
    idx integer not null,
    fence bigint not null,
    note json not null,
    primary key (run_id, idx)
);

-- What handlers left for the next attempts of their tasks; gone when the task has ended.
create table windlass.checkpoints (
    run_id uuid not null,
    idx integer not null,
    -- The fence of the attempt that left it.
    fence bigint not null check (fence >= 1),
    value json not null,
    primary key (run_id, idx)
);

-- What durable functions remember: a row for each of their calls that has a result or waits.
-- A result never changes. The lock of the lease is all it takes to write here.
create table windlass.steps (
    run_id uuid not null,
    idx integer not null,
    -- The place of the call among those of the function, in the order in which it makes them;
    -- 0 for the input that a function began afresh with.
    call integer not null check (call >= 0),
    -- The place of the result in the order in which the function learned of them; null while
    -- there is none.
    number integer check (number >= 0),
    failures integer not null check (failures >= 0),
    -- It goes on when no more than so many of its children run.
    children_max integer check (children_max >= 0),
    -- When it goes on by itself, while it has no result.
    due timestamptz,
    kind text not null check (kind in ('step', 'undoable', 'sleep', 'time', 'signal', 'child', 'patch', 'input')),
    name text not null check (octet_length(name) between 1 and 200),
    -- The key of the signal that it waits for, or waited for, if it is not one to the run.
    key text check (octet_length(key) between 1 and 400),
    -- Why the step, or its newest attempt, failed.
    failure json,
    -- What it gave, unless that is `null`.
    value json,
    primary key (run_id, idx, call),
    constraint only_the_input_is_no_call check ((kind = 'input') = (call = 0) and (call = 0) = (number is not distinct from 0)),
    constraint only_what_waits_is_due check (number is null or due is null),
    constraint only_a_signal_has_a_key check (key is null or kind = 'signal'),
    constraint only_a_result_has_a_value check (number is not null or value is null),
    constraint a_failure_has_no_value check (failure is null or value is null)
) with (fillfactor = 95);

create index steps_open on windlass.steps (run_id, idx) where number is null;
-- What can be undone.
create index steps_undoable on windlass.steps (run_id, idx)
    where kind = 'undoable' and number is not null and failure is null;

-- Which runs were started by calls of durable functions that wait for them.
create table windlass.children (
    child_id uuid primary key,
    run_id uuid not null,
    idx integer not null,
    call integer not null,
    -- Among the children of the call.
    place integer not null check (place >= 0),
    -- True if it is known to have ended, otherwise null.
    has_ended boolean
);

create unique index children_of on windlass.children (run_id, idx, call, place);
create index children_open on windlass.children (run_id, idx, call) where has_ended is null;

-- Signals to runs, in the order in which they came. One that was taken stays, without what it
-- said, so that it is known when it is sent again.
create table windlass.signals (
    run_id uuid not null,
    seq bigint generated always as identity,
    id uuid not null,
    is_taken boolean not null default false,
    at timestamptz not null,
    name text not null check (octet_length(name) between 1 and 200),
    value json not null,
    primary key (run_id, id)
);

create index signals_waiting on windlass.signals (run_id, seq) where not is_taken;

-- Signals to keys of tenants, in the order in which they came. One that was taken stays, without
-- what it said, so that it is known when it is sent again. Each is deleted some time after it has
-- expired, and not taken from then on.
--
-- Whoever sends, takes, or is about to wait locks the mailbox: the tenant and the key.
create table windlass.key_signals (
    tenant text not null check (octet_length(tenant) between 1 and 200),
    key text not null check (octet_length(key) between 1 and 400),
    seq bigint generated always as identity,
    id uuid not null,
    is_taken boolean not null default false,
    at timestamptz not null,
    expires_at timestamptz not null,
    name text not null check (octet_length(name) between 1 and 200),
    value json not null,
    primary key (tenant, key, id)
) with (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

create index key_signals_waiting on windlass.key_signals (tenant, key, name, seq)
    where not is_taken;
create index key_signals_expiry on windlass.key_signals (expires_at);

-- The calls of functions that are parked until a signal to a key comes, for as long as they are.
-- The tenant is that of the run, key and name are those of the call.
create table windlass.key_waiters (
    run_id uuid not null,
    idx integer not null,
    call integer not null,
    -- True if a signal came and a note in `staged` lets the function go on, otherwise null.
    is_told boolean,
    tenant text not null,
    key text not null,
    name text not null,
    primary key (run_id, idx, call)
) with (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

create index key_waiters_of on windlass.key_waiters (tenant, key, name) where is_told is null;

-- What handlers did once for each key: a row is written in the transaction of the work (`once`), and
-- stays for the time that was said, longer than its run if need be. Whoever comes with the same key
-- meanwhile waits for the end of that transaction.
create table windlass.handled (
    tenant text not null check (octet_length(tenant) between 1 and 200),
    -- The workflow and the task, with a slash between them.
    scope text not null check (octet_length(scope) between 3 and 401),
    key text not null check (octet_length(key) between 1 and 400),
    -- The run whose task did it.
    run_id uuid not null,
    handled_at timestamptz not null,
    -- From when on it may be done again, and the row be deleted.
    expires_at timestamptz not null,
    -- What it gave, unless that is `null`.
    value json,
    primary key (tenant, scope, key)
) with (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

create index handled_expiry on windlass.handled (expires_at);

-- A queue and a priority: tags are comparable within a level, and each has a virtual
-- time of its own.
create table windlass.levels (
    id integer generated always as identity primary key,
    queue text not null check (octet_length(queue) between 1 and 200),
    priority smallint not null check (priority between -100 and 100),
    unique (queue, priority)
);

-- A level and what a worker needs to serve it. Claims look at the routes they can serve, so
-- tasks that nobody present can run cost nobody anything.
create table windlass.routes (
    id integer generated always as identity primary key,
    level_id integer not null references windlass.levels (id),
    workflow text not null,
    version integer not null,
    -- Of tasks whose keys have owners, the bucket that a worker must own; -1 for all others.
    bucket smallint not null default -1 check (bucket between -1 and 1023),
    unique (workflow, version, level_id, bucket)
);

create table windlass.tenants (
    -- Also the phase of the tenant's tags.
    id integer generated always as identity primary key,
    name text not null unique check (octet_length(name) between 1 and 200),
    weight smallint not null default 1 check (weight between 1 and 1000)
);

-- Limits on how many tasks are under way at once, by their names.
create table windlass.limits (
    id integer generated always as identity primary key,
    name text not null unique check (octet_length(name) between 1 and 602)
);

-- The lanes of limits in which someone is, or of which something is to be remembered. A task stands
-- in its lane of each of its limits from the moment in which its turn comes until it has ended; who
-- stands up to `served` has room, who stands behind it waits.
--
-- A row is replaced, not updated: the newest is found without a look at the older ones, which
-- an old snapshot keeps. Whoever reads or writes here has locked the lane (advisory, by number).
create table windlass.lanes (
    limit_id integer not null,
    -- 0 if all tenants share it.
    tenant_id integer not null,
    -- Empty if the limit has one lane for all.
    key text not null check (octet_length(key) <= 400),
    number bigint not null,
    -- How many are under way.
    held integer not null check (held >= 0),
    served bigint not null,
    -- The last place that was taken.
    last bigint not null,
    -- The most slots that it has had by the definition of anyone in it; null if it bounds
    -- something else.
    slots integer check (slots >= 1),
    -- What it remembers besides who is in it: tokens, a quiet, failures.
    meter json,
    -- The place of who waits first, if that one has a time in `timers`, and the time.
    alarm_seq bigint,
    alarm_due timestamptz,
    -- When it can be forgotten, if nobody is in it.
    forget_at timestamptz,
    primary key (limit_id, tenant_id, key, number),
    constraint nobody_is_served_before_coming check (served <= last),
    constraint an_alarm_has_a_time check ((alarm_seq is null) = (alarm_due is null)),
    constraint only_an_empty_lane_is_forgotten check (forget_at is null or held = 0)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

create index lanes_forgotten on windlass.lanes (forget_at) where forget_at is not null;

-- Who stands where in the lanes. Places are given in order.
create table windlass.lane_places (
    run_id uuid not null,
    idx integer not null,
    limit_id integer not null,
    tenant_id integer not null,
    key text not null,
    seq bigint not null,
    -- How many slots the lane has by the definition of the task; null if it bounds something
    -- else.
    slots integer check (slots >= 1),
    -- True if newcomers take the place of the oldest here, otherwise null.
    is_rival boolean,
    -- Set if someone else has its place, and its run is about to be cancelled: whether it was
    -- under way by then or only waited.
    superseded text check (superseded in ('under_way', 'waiting')),
    primary key (run_id, idx, limit_id)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

create index lane_places_order on windlass.lane_places (limit_id, tenant_id, key, seq);
create index lane_places_rivals on windlass.lane_places (limit_id, tenant_id, key, seq)
    where is_rival and superseded is null;

create sequence windlass.ready_seq as bigint cache 1;

create table windlass.ready (
    run_id uuid not null,
    idx integer not null,
    definition_id integer not null,
    route_id integer not null,
    level_id integer not null,
    tenant_id integer not null,
    -- The place: by tag, then by age.
    tag bigint not null,
    seq bigint not null,
    fence bigint not null check (fence >= 0),
    attempt integer not null check (attempt >= 0),
    max_attempts integer not null,
    answered_fence bigint,
    answered_verb text,
    primary key (run_id, idx),
    constraint a_ready_task_has_an_attempt_left check (attempt < max_attempts)
) with (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.2, autovacuum_analyze_threshold = 10000,
    autovacuum_vacuum_insert_threshold = -1, autovacuum_vacuum_cost_delay = 0
);

create index ready_order on windlass.ready (route_id, tag, seq);
create index ready_turns on windlass.ready (level_id, tenant_id, tag);

-- What came into each level and what left it, a row for each statement that did, until the duty
-- `rollup` adds it to `queue_counts`. So that nobody ever counts the rows of `ready`, and no two
-- who change it wait for each other.
create table windlass.queue_changes (
    seq bigint generated always as identity primary key,
    level_id integer not null,
    came integer not null check (came >= 0),
    went integer not null check (went >= 0)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- How many tasks became ready in each level since it is there, and how many of them are not any
-- more, as of the last rollup.
create table windlass.queue_counts (
    level_id integer primary key references windlass.levels (id),
    came bigint not null check (came >= 0),
    went bigint not null check (went >= 0),
    changed_at timestamptz not null,
    -- Since when the task is ready that is so for the longest time; null if there is none.
    oldest_at timestamptz
) with (fillfactor = 50);

create function windlass.count_came() returns trigger
language plpgsql
as $$
begin
    insert into windlass.queue_changes (level_id, came, went)
    select c.level_id, count(*), 0 from came c group by c.level_id;
    return null;
end
$$;

create function windlass.count_went() returns trigger
language plpgsql
as $$
begin
    insert into windlass.queue_changes (level_id, came, went)
    select w.level_id, 0, count(*) from went w group by w.level_id;
    return null;
end
$$;

revoke execute on function windlass.count_came, windlass.count_went from public;

create trigger ready_came after insert on windlass.ready
referencing new table as came
for each statement execute function windlass.count_came();

create trigger ready_went after delete on windlass.ready
referencing old table as went
for each statement execute function windlass.count_went();

create table windlass.leases (
    run_id uuid not null,
    worker_id uuid not null,
    -- The number of the claim among those of the worker.
    claim_seq bigint not null,
    -- Where it stood. What the route and the run tell of that is not here.
    tag bigint not null,
    seq bigint not null,
    fence bigint not null check (fence >= 1),
    idx integer not null,
    route_id integer not null,
    attempt integer not null check (attempt >= 1),
    max_attempts integer not null,
    answered_fence bigint,
    answered_verb text,
    -- True if this attempt has left a checkpoint, otherwise null, which takes no room.
    has_checkpoint boolean,
    -- When it is taken away whatever its worker says, if the task has a visibility timeout.
    take_back_at timestamptz,
    primary key (run_id, idx),
    constraint attempts_are_bounded check (attempt <= max_attempts)
) with (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.2, autovacuum_analyze_threshold = 10000,
    autovacuum_vacuum_insert_threshold = -1, autovacuum_vacuum_cost_delay = 0
);

create index leases_worker on windlass.leases (worker_id, claim_seq);
create index leases_take_back on windlass.leases (take_back_at, run_id, idx)
    where take_back_at is not null;

create sequence windlass.timer_seq as bigint cache 1;

create table windlass.timers (
    run_id uuid not null,
    idx integer not null,
    due timestamptz not null,
    -- What is due at the same time is due in the order in which it was scheduled.
    seq bigint not null,
    fence bigint not null check (fence >= 0),
    attempt integer not null check (attempt >= 0),
    max_attempts integer not null,
    answered_fence bigint,
    answered_verb text,
    -- True if it waits for something to happen, which may be before it is due and may be all it
    -- waits for; otherwise null, which takes no room.
    is_waiting boolean,
    primary key (run_id, idx),
    constraint only_what_waits_for_more_is_never_due
        check (is_waiting or due < 'infinity'),
    constraint a_scheduled_task_has_an_attempt_left check (attempt < max_attempts)
) with (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.2, autovacuum_analyze_threshold = 10000,
    autovacuum_vacuum_insert_threshold = -1, autovacuum_vacuum_cost_delay = 0
);

create index timers_due on windlass.timers (due, seq);

-- What must have happened until when: a run have ended (`idx` is -1), or a task have been claimed
-- by its next fence. It stays when that has happened, until it is due.
create table windlass.deadlines (
    run_id uuid not null,
    idx integer not null check (idx >= -1),
    fence bigint not null check (fence >= 0),
    due timestamptz not null,
    primary key (run_id, idx)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- It sorts as the columns would, and a lookup by run and task cannot take it, which looks as cheap
-- as the primary key while there are few.
create index deadlines_due on windlass.deadlines (due, uuid_send(run_id), (idx::bigint));

create table windlass.workers (
    id uuid primary key,
    name text not null check (octet_length(name) <= 200),
    slots integer not null,
    lease interval not null,
    -- `dying` while tasks of it remain to be taken away; a dead id is never used again.
    state text not null default 'live' check (state in ('live', 'dying', 'dead')),
    joined_at timestamptz not null,
    ended_at timestamptz,
    -- It owns no keys any more.
    is_draining boolean not null default false,
    host text not null default '' check (octet_length(host) <= 256),
    pid bigint,
    version text not null default '' check (octet_length(version) <= 256),
    queues text[] not null default '{}',
    -- The workflows that it has handlers for, and their versions.
    workflows text[] not null default '{}',
    versions integer[] not null default '{}'
        check (cardinality(versions) = cardinality(workflows)),
    metadata jsonb not null default '{}' check (jsonb_typeof(metadata) = 'object')
);

-- The bytes of ids, so that no lookup by id can take it.
create index workers_by_age on windlass.workers (joined_at, uuid_send(id));
create index workers_alive on windlass.workers (id) where state <> 'dead';

-- The last sign of life of each worker that is not dead, under the lock of its row in
-- `workers`. A row is replaced by one with the next number, not updated: the newest is found
-- without a look at the older ones, which an old snapshot keeps.
create table windlass.pulses (
    worker_id uuid not null,
    number bigint not null,
    lease_until timestamptz not null,
    -- The newest claim that was answered or given up.
    last_claim bigint not null,
    -- It holds no task of an older claim. Looking for its leases begins here, behind the
    -- dead rows of those that ended.
    oldest_claim bigint not null,
    seen_at timestamptz not null default clock_timestamp(),
    primary key (worker_id, number)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- Who does each of the background duties. A sweep of a leader locks its row for share before
-- anything else, so that nobody can begin the next term before it has committed; whoever
-- writes here passes over rows that others have locked. Written about once a second at most:
-- the row is found behind all its dead versions while an old snapshot keeps them.
create table windlass.leaders (
    duty text primary key check (
        duty in ('promote_due', 'reap', 'prune', 'schedules', 'rollup', 'audit')
    ),
    -- Grows whenever the duty changes hands, and never goes back.
    term bigint not null default 0 check (term >= 0),
    -- Who leads, or led last; null if nobody ever did.
    holder uuid,
    holder_name text check (octet_length(holder_name) <= 200),
    since timestamptz,
    renewed_at timestamptz,
    -- From when on anyone may begin the next term; at once if it was given up.
    until timestamptz,
    -- From when on anyone else may, also if the leader is heard of; null if it does not rotate.
    rotates_at timestamptz,
    is_given_up boolean not null default false,
    -- What was done in all terms.
    runs bigint not null default 0 check (runs >= 0),
    items bigint not null default 0 check (items >= 0),
    errors bigint not null default 0 check (errors >= 0),
    last_run_at timestamptz,
    -- How many microseconds all sweeps took, and the last one.
    busy bigint not null default 0 check (busy >= 0),
    last_took bigint check (last_took >= 0),
    last_error text check (octet_length(last_error) <= 2000),
    constraint a_term_has_a_holder check (
        (term = 0) = (holder is null)
        and (holder is null)
            = (num_nulls(holder_name, since, renewed_at, until) = 4)
        and num_nulls(holder_name, since, renewed_at, until) in (0, 4)
        and (rotates_at is null or holder is not null)
    )
) with (fillfactor = 50);

insert into windlass.leaders (duty) values
    ('promote_due'), ('reap'), ('prune'), ('schedules'), ('rollup'), ('audit');

-- Duties of programs: what is done once in a while by one process at a time. Whoever is at one
-- renews its row three times per time to live; the others read it when it may be theirs, and
-- write it only then. Whoever claims passes over rows that others have locked.
create table windlass.duties (
    name text primary key check (octet_length(name) between 1 and 200),
    every_micros bigint not null check (every_micros >= 1000000),
    -- The nominal time that is served next, or now by who is at it.
    next_at timestamptz not null,
    -- Grows whenever the duty is begun, and never goes back.
    term bigint not null default 0 check (term >= 0),
    -- Who is at it, or was last; null if it was never begun.
    holder uuid,
    holder_name text check (octet_length(holder_name) <= 200),
    since timestamptz,
    -- From when on anyone may begin the next term; null if nobody is at it.
    until timestamptz,
    -- How many times a handler ended, how many of them failed or were lost, and the last of both.
    runs bigint not null default 0 check (runs >= 0),
    errors bigint not null default 0 check (errors >= 0),
    last_run_at timestamptz,
    last_took_micros bigint check (last_took_micros >= 0),
    last_error text check (octet_length(last_error) <= 2000),
    constraint a_term_of_a_duty_has_a_holder check (
        num_nulls(holder, holder_name, since) = case when term = 0 then 3 else 0 end
        and (until is null or term > 0)
    ),
    constraint a_duty_that_ended_took_a_time check (
        (runs = 0) = (last_run_at is null) and (last_run_at is null) = (last_took_micros is null)
    )
) with (fillfactor = 50);

-- The largest tag that each worker claimed of a level. A level's virtual time is the
-- largest of them: no row is written by two claimers. A worker that is no more leaves its
-- mark to the worker 00000000-0000-0000-0000-000000000000.
--
-- A row is replaced, not updated: with the tag in both indexes, the newest mark is found
-- without a look at the older ones, which an old snapshot keeps.
create table windlass.marks (
    level_id integer not null,
    worker_id uuid not null,
    tag bigint not null,
    primary key (worker_id, level_id, tag)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

create index marks_top on windlass.marks (level_id, tag);

-- What waits for the next sweep of what is due: runs that were started inside a user's
-- transaction and are not in the queues yet, notes of runs that ended, for their parents or
-- for their children, runs that may have slots in lanes by now, runs whose places in lanes others
-- have, and notes for runs that wait for a key to which a signal came.
create table windlass.staged (
    seq bigint generated always as identity primary key,
    run_id uuid not null,
    delay interval not null default '0' check (delay >= interval '0'),
    -- None for a run that is to be let into the queues.
    purpose text check (purpose in ('child_ended', 'cancelled', 'lane', 'signalled', 'superseded')),
    child_id uuid,
    constraint a_child_that_ended_is_named
        check ((purpose is not distinct from 'child_ended') = (child_id is not null))
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- History: what one transaction did to one run, an event a line. The view `events` shows
-- events as rows.
--
-- A line is the index of the task or `-` if it is about the run, what happened, the states
-- before and after, the task's fence and attempt after it, and behind a tab what else there
-- is to say of it, as JSON; `-` stands for nothing. For what most lines say there are
-- characters that JSON never has unescaped; the view puts the words in their place.
create table windlass.history (
    run_id uuid not null,
    id bigint generated always as identity check (id < 2251799813685248),
    at timestamptz not null,
    lines text not null,
    primary key (run_id, id)
);

-- What is set for the whole database, in one row: what one program writes, all must be able
-- to read.
create table windlass.settings (
    is_only boolean primary key default true check (is_only),
    -- The largest input, output or note on progress, in bytes of JSON text.
    payload_limit integer not null default 1048576
        check (payload_limit between 1024 and 67108864),
    -- Whether there was a rule of retention once that is gone: then a run that is gone may have been
    -- deleted by it.
    had_retention boolean not null default false
);

insert into windlass.settings default values;

-- How long runs are kept that are over; those that no rule is about are kept for ever.
create table windlass.retention (
    -- Empty for all that have no rule of their own for the state.
    workflow text not null check (octet_length(workflow) <= 200),
    state text not null check (state in ('succeeded', 'failed', 'cancelled')),
    -- Both since the end of a run.
    keep_for interval not null check (keep_for >= interval '0'),
    keep_key_for interval not null check (keep_key_for >= interval '0'),
    archives boolean not null,
    with_dead_letters boolean not null,
    primary key (workflow, state)
);

-- The idempotency keys of runs that are gone, for as long as they are kept. A key is here from the
-- transaction on in which its run goes.
create table windlass.kept_keys (
    tenant text not null check (octet_length(tenant) between 1 and 200),
    workflow text not null check (octet_length(workflow) between 1 and 200),
    key text not null check (octet_length(key) between 1 and 400),
    run_id uuid not null,
    expires_at timestamptz not null,
    -- With another one, a start is another one.
    input json not null,
    primary key (tenant, workflow, key)
);

create index kept_keys_expiry on windlass.kept_keys (expires_at);

-- Runs that are gone, if they were to be archived.
create table windlass.archived_runs (
    id uuid primary key,
    version integer not null check (version >= 1),
    created_at timestamptz not null,
    ended_at timestamptz not null,
    archived_at timestamptz not null,
    workflow text not null check (octet_length(workflow) between 1 and 200),
    tenant text not null check (octet_length(tenant) between 1 and 200),
    state text not null check (state in ('succeeded', 'failed', 'cancelled')),
    body json not null
);

-- What starts runs by itself. The next nominal time only goes forward, in the transaction that starts
-- the run of the one before.
create table windlass.schedules (
    -- The ids of runs follow from it: that of a schedule that was deleted is never used again.
    id bigint generated always as identity primary key,
    tenant text not null check (octet_length(tenant) between 1 and 200),
    name text not null check (octet_length(name) between 1 and 200),
    workflow text not null check (octet_length(workflow) between 1 and 200),
    version integer not null check (version >= 1),
    priority smallint not null check (priority between -100 and 100),
    state text not null check (state in ('active', 'paused', 'disabled')),
    -- The program that declares it, null if an operator made it.
    owner text check (octet_length(owner) between 1 and 200),
    -- A cron expression and a zone, an interval and an anchor, or a time.
    cadence json not null,
    -- `skip`, `once`, or `all:` and how many.
    missed text not null check (missed ~ '^(skip|once|all:[0-9]{1,4})$'),
    overlap text not null check (overlap in ('allow', 'skip', 'queue', 'cancel')),
    jitter_micros bigint not null check (jitter_micros >= 0),
    grace_micros bigint not null check (grace_micros >= 1000000),
    starts_at timestamptz,
    ends_at timestamptz,
    created_at timestamptz not null,
    -- The next nominal time and when it is served, null if there is none; the last that was decided.
    next_at timestamptz,
    due_at timestamptz,
    last_at timestamptz,
    -- The nominal time that waits for a run to end.
    queued_at timestamptz,
    input json not null,
    unique (tenant, name),
    constraint a_schedule_never_goes_back check (next_at > last_at),
    constraint a_next_time_is_served_later check (
        (next_at is null) = (due_at is null) and due_at >= next_at
    )
) with (fillfactor = 50);

create index schedules_due on windlass.schedules (due_at, id)
    where state = 'active' and due_at is not null;
create index schedules_queued on windlass.schedules (id)
    where state = 'active' and queued_at is not null;

-- What became of nominal times, the newest of each schedule.
create table windlass.schedule_fires (
    seq bigint generated always as identity primary key,
    schedule_id bigint not null references windlass.schedules (id) on delete cascade,
    nominal_at timestamptz not null,
    at timestamptz not null,
    by text not null check (by in ('time', 'backfill', 'trigger')),
    result text not null
        check (result in ('started', 'missed', 'overlapped', 'queued', 'refused')),
    -- The run that was started; it may be gone.
    run_id uuid,
    -- Whether the run may not be over, where that matters.
    is_open boolean not null default false,
    -- Of nominal times that were missed: the first of them, and how many.
    first_at timestamptz,
    count integer check (count >= 1),
    reason text check (octet_length(reason) <= 4000),
    constraint a_started_fire_has_a_run check ((result = 'started') = (run_id is not null)),
    constraint missed_times_are_counted check (
        (result = 'missed') = (first_at is not null)
        and (first_at is null) = (count is null)
        and first_at <= nominal_at
    )
);

-- Each nominal time is decided once, and started once.
create unique index schedule_fires_decided on windlass.schedule_fires (schedule_id, nominal_at)
    where by = 'time';
create unique index schedule_fires_started on windlass.schedule_fires (schedule_id, nominal_at)
    where by <> 'trigger' and result = 'started';
create index schedule_fires_newest on windlass.schedule_fires (schedule_id, seq);
create index schedule_fires_open on windlass.schedule_fires (schedule_id) where is_open;

-- All tasks of all runs.
create view windlass.tasks as
select
    r.id as run_id,
    d.idx,
    coalesce(t.state, case when p.run_id is not null then 'active' else 'pending' end) as state,
    coalesce(t.fence, 0) as fence,
    coalesce(t.attempt, 0) as attempt,
    d.max_attempts,
    case
        when t.run_id is not null then coalesce(t.pending_parents, 0)
        when p.run_id is not null then 0
        else d.parents
    end as pending_parents,
    coalesce(t.failed_parents, 0) as failed_parents,
    coalesce(t.skipped_parents, 0) as skipped_parents,
    coalesce(t.answered_fence, case when t.answered_verb is not null then t.fence end)
        as answered_fence,
    t.answered_verb,
    t.failure,
    case when t.state = 'succeeded' and d.kind <> 'sleep' then coalesce(t.output, 'null') end
        as output
from windlass.runs r
join windlass.definition_tasks d on d.definition_id = r.definition_id
left join windlass.task_rows t on t.run_id = r.id and t.idx = d.idx
left join windlass.leases l on l.run_id = r.id and l.idx = d.idx
left join windlass.ready q on q.run_id = r.id and q.idx = d.idx
left join windlass.timers w on w.run_id = r.id and w.idx = d.idx
cross join lateral (select coalesce(l.run_id, q.run_id, w.run_id) as run_id) p;

-- The states of tasks by their words, and what only active tasks have.
create view windlass.task_states as
select
    r.id as run_id,
    d.idx,
    d.name,
    case
        when t.state <> 'active' then t.state
        when l.run_id is not null then 'running'
        when q.run_id is not null then 'ready'
        when w.is_waiting then 'waiting'
        when w.run_id is not null then 'scheduled'
        when t.state is null then 'pending'
    end as state,
    coalesce(l.fence, q.fence, w.fence, t.fence, 0) as fence,
    coalesce(l.attempt, q.attempt, w.attempt, t.attempt, 0) as attempt,
    d.max_attempts,
    case
        when coalesce(l.run_id, q.run_id, w.run_id) is not null then 0
        when t.run_id is not null then coalesce(t.pending_parents, 0)
        else d.parents
    end as pending_parents,
    nullif(w.due, 'infinity') as available_at,
    l.worker_id,
    case when t.state = 'succeeded' and d.kind <> 'sleep' then coalesce(t.output, 'null') end
        as output,
    t.failure,
    n.note as progress
from windlass.runs r
join windlass.definition_tasks d on d.definition_id = r.definition_id
left join windlass.task_rows t on t.run_id = r.id and t.idx = d.idx
left join windlass.leases l on l.run_id = r.id and l.idx = d.idx
left join windlass.ready q on q.run_id = r.id and q.idx = d.idx
left join windlass.timers w on w.run_id = r.id and w.idx = d.idx
left join windlass.notes n on n.run_id = r.id and n.idx = d.idx
    and n.fence = coalesce(l.fence, q.fence, w.fence, t.fence);

-- Events as rows, in the order of their ids. `entry` is the row of `history`. Each column is
-- split off by itself, so that those that nobody asks for cost nothing.
create view windlass.events as
select
    h.id * 4096 + l.n - 1 as id,
    h.run_id,
    h.at,
    split_part(l.line, ' ', 2) as kind,
    -- The task, or null if it is the run's event.
    nullif(split_part(l.line, ' ', 1), '-')::integer as idx,
    nullif(split_part(l.line, ' ', 3), '-') as from_state,
    split_part(l.line, ' ', 4) as to_state,
    nullif(split_part(l.line, ' ', 5), '-')::bigint as fence,
    nullif(split_part(split_part(l.line, E'\t', 1), ' ', 6), '-')::integer as attempt,
    nullif(split_part(l.line, E'\t', 2), '')::json as detail,
    h.id as entry
from windlass.history h
cross join lateral unnest(string_to_array(
    replace(replace(replace(replace(replace(replace(h.lines,
        E'\x01', ' queued pending ready '),
        E'\x02', ' started ready running '),
        E'\x03', ' succeeded running succeeded '),
        E'\x04', '- run_started - running - -'),
        E'\x05', '- run_ended running succeeded - -'),
        E'\x06', E'\t{"worker":"'),
    E'\n')) with ordinality as l (line, n);

-- For whoever looks after a database: docs/operations.md says what to do about what they show.
-- Each costs what it shows, however much there is besides: it reads ends of indexes, and its
-- counts stop at a limit.
--
-- Since when a task is ready is in the history of its run. The newest 100 entries are looked at;
-- if none of them says so, it is the start of the run, which may be earlier.

-- What waits in each queue, by priority.
create view windlass.queue_lag as
select
    v.queue,
    v.priority,
    -- Counted up to 1,000 for each version of each workflow; `is_more` if one has more.
    sum(least(c.ready, 1000))::bigint as ready,
    bool_or(c.ready > 1000) as is_more,
    -- How many tasks the tenant with the longest backlog has in it, if its weight is 1.
    greatest(ceil((max(z.tag) - max(coalesce(m.tag, 0))) / 1048576.0), 0)::bigint as turns,
    -- The tasks that are next, one of each version of each workflow: since when, at the longest.
    min(coalesce(h.at, r.created_at)) as ready_since,
    now() - min(coalesce(h.at, r.created_at)) as lag
from windlass.levels v
join windlass.routes t on t.level_id = v.id
cross join lateral (
    select q.run_id, q.idx
    from windlass.ready q
    where q.route_id = t.id
    order by q.tag, q.seq
    limit 1
) a
cross join lateral (
    select q.tag
    from windlass.ready q
    where q.route_id = t.id
    order by q.tag desc, q.seq desc
    limit 1
) z
cross join lateral (
    select count(*) as ready
    from (
        select 1 from windlass.ready q where q.route_id = t.id order by q.tag, q.seq limit 1001
    ) n
) c
left join lateral (
    select k.tag from windlass.marks k where k.level_id = v.id order by k.tag desc limit 1
) m on true
join windlass.runs r on r.id = a.run_id
left join lateral (
    select e.at
    from (
        select x.id, x.at, x.lines
        from windlass.history x
        where x.run_id = a.run_id
        order by x.id desc
        limit 100
    ) e
    where E'\n' || e.lines ~ format(E'\n%s(\x01| [a-z_]+ [a-z]+ ready )', a.idx)
    order by e.id desc
    limit 1
) h on true
group by v.id, v.queue, v.priority;

-- The task that each tenant waits for the longest in each queue and priority: the next of its
-- own. One look for each tenant that has something ready.
create view windlass.oldest_ready as
with recursive waiting (level_id, tenant_id) as (
    (
        select q.level_id, q.tenant_id
        from windlass.ready q
        order by q.level_id, q.tenant_id, q.tag
        limit 1
    )
    union all
    select n.level_id, n.tenant_id
    from waiting w
    cross join lateral (
        select q.level_id, q.tenant_id
        from windlass.ready q
        where (q.level_id, q.tenant_id) > (w.level_id, w.tenant_id)
        order by q.level_id, q.tenant_id, q.tag
        limit 1
    ) n
)
select
    v.queue,
    v.priority,
    t.name as tenant,
    r.workflow,
    r.version,
    a.run_id,
    d.name as task,
    a.attempt,
    r.created_at as started_at,
    coalesce(h.at, r.created_at) as ready_since,
    now() - coalesce(h.at, r.created_at) as age
from waiting w
join windlass.levels v on v.id = w.level_id
join windlass.tenants t on t.id = w.tenant_id
cross join lateral (
    select q.run_id, q.idx, q.definition_id, q.attempt
    from windlass.ready q
    where q.level_id = w.level_id and q.tenant_id = w.tenant_id
    order by q.tag
    limit 1
) a
join windlass.runs r on r.id = a.run_id
join windlass.definition_tasks d on d.definition_id = a.definition_id and d.idx = a.idx
left join lateral (
    select e.at
    from (
        select x.id, x.at, x.lines
        from windlass.history x
        where x.run_id = a.run_id
        order by x.id desc
        limit 100
    ) e
    where E'\n' || e.lines ~ format(E'\n%s(\x01| [a-z_]+ [a-z]+ ready )', a.idx)
    order by e.id desc
    limit 1
) h on true;

-- The tasks whose lease, or whose visibility timeout, is over and that nobody has taken away.
create view windlass.expired_leases as
select
    x.reason,
    x.expired_at,
    now() - x.expired_at as overdue,
    l.run_id,
    d.name as task,
    l.attempt,
    l.fence,
    w.id as worker_id,
    w.name as worker,
    w.host,
    w.pid,
    w.state
from (
    select 'lease' as reason, o.run_id, o.idx, p.lease_until as expired_at
    from windlass.workers k
    cross join lateral (
        select y.lease_until, y.oldest_claim
        from windlass.pulses y
        where y.worker_id = k.id
        order by y.number desc
        limit 1
    ) p
    join windlass.leases o on o.worker_id = k.id and o.claim_seq >= p.oldest_claim
    where k.state <> 'dead' and p.lease_until < now()
    union all
    select 'visibility_timeout', o.run_id, o.idx, o.take_back_at
    from windlass.leases o
    where o.take_back_at is not null and o.take_back_at < now()
) x
join windlass.leases l on l.run_id = x.run_id and l.idx = x.idx
join windlass.workers w on w.id = l.worker_id
join windlass.runs r on r.id = l.run_id
join windlass.definition_tasks d on d.definition_id = r.definition_id and d.idx = l.idx;

-- What became of the newest 10,000 runs that were started within an hour, by the minute in which
-- they were started and ended. Ends of runs that are older than those are not here; the oldest
-- minute is whole only if the limit did not cut it.
create view windlass.throughput_by_minute as
with newest as (
    select r.created_at, r.ended_at, r.state
    from windlass.runs r
    where r.created_at > now() - interval '1 hour'
    order by r.created_at desc, uuid_send(r.id) desc
    limit 10000
)
select
    e.minute,
    count(*) filter (where e.what = 'started') as started,
    count(*) filter (where e.what = 'succeeded') as succeeded,
    count(*) filter (where e.what = 'failed') as failed,
    count(*) filter (where e.what = 'cancelled') as cancelled,
    e.minute > c.oldest or c.runs < 10000 as is_whole
from (
    select date_trunc('minute', n.created_at) as minute, 'started' as what from newest n
    union all
    select date_trunc('minute', n.ended_at), n.state from newest n where n.ended_at is not null
) e
cross join (
    select count(*) as runs, date_trunc('minute', min(n.created_at)) as oldest from newest n
) c
group by e.minute, c.oldest, c.runs;

-- How much each worker that is not dead has to do.
create view windlass.worker_load as
select
    w.id as worker_id,
    w.name as worker,
    w.host,
    w.pid,
    case when w.state = 'live' and w.is_draining then 'draining' else w.state end as state,
    w.queues,
    w.slots,
    c.tasks,
    round(100.0 * c.tasks / greatest(w.slots, 1))::integer as percent,
    w.joined_at,
    p.seen_at,
    p.lease_until
from windlass.workers w
left join lateral (
    select x.seen_at, x.lease_until, x.oldest_claim
    from windlass.pulses x
    where x.worker_id = w.id
    order by x.number desc
    limit 1
) p on true
cross join lateral (
    select count(*) as tasks
    from windlass.leases l
    where l.worker_id = w.id and l.claim_seq >= coalesce(p.oldest_claim, 0)
) c
where w.state <> 'dead';

-- Of the newest 10,000 dead letters, how many there are for each key of the limits of their tasks.
-- One whose task has several limits is counted for each of them, one whose task has none under
-- no limit and no key.
create view windlass.dead_letters_by_key as
select
    d.tenant,
    d.workflow,
    d.task,
    k."limit",
    k.key,
    count(*) as dead_letters,
    min(d.failed_at) as oldest_at,
    max(d.failed_at) as newest_at,
    -- Those of the newest.
    (array_agg(d.reason order by d.failed_at desc, d.run_id desc))[1] as reason,
    (array_agg(d.failure ->> 'message' order by d.failed_at desc, d.run_id desc))[1] as error,
    (array_agg(d.run_id order by d.failed_at desc, d.run_id desc))[1] as run_id
from (
    select x.run_id, x.failed_at, x.tenant, x.workflow, x.task, x.reason, x.failure, x.lanes
    from windlass.dead_letters x
    order by x.failed_at desc, uuid_send(x.run_id) desc, x.idx::bigint desc
    limit 10000
) d
left join lateral json_to_recordset(d.lanes) as k ("limit" text, key text) on true
group by d.tenant, d.workflow, d.task, k."limit", k.key;

-- The lanes of limits in which someone is.
create view windlass.lane_usage as
select
    m.name as "limit",
    t.name as tenant,
    l.key,
    l.slots,
    l.held as taken,
    -- Counted up to 1,000; `is_more` if there are more.
    least(w.waiting, 1000) as waiting,
    w.waiting > 1000 as is_more,
    -- Who has a slot and came first, and who is next to get one.
    h.run_id as first_run_id,
    h.idx as first_idx,
    n.run_id as next_run_id,
    n.idx as next_idx
from windlass.lanes l
left join windlass.limits m on m.id = l.limit_id
left join windlass.tenants t on t.id = l.tenant_id
cross join lateral (
    select count(*) as waiting
    from (
        select 1
        from windlass.lane_places p
        where p.limit_id = l.limit_id and p.tenant_id = l.tenant_id and p.key = l.key
            and p.seq > l.served and p.superseded is null
        limit 1001
    ) c
) w
left join lateral (
    select p.run_id, p.idx
    from windlass.lane_places p
    where p.limit_id = l.limit_id and p.tenant_id = l.tenant_id and p.key = l.key
        and p.seq <= l.served and p.superseded is distinct from 'waiting'
    order by p.seq
    limit 1
) h on true
left join lateral (
    select p.run_id, p.idx
    from windlass.lane_places p
    where p.limit_id = l.limit_id and p.tenant_id = l.tenant_id and p.key = l.key
        and p.seq > l.served and p.superseded is null
    order by p.seq
    limit 1
) n on true;

-- Writes of users in transactions of their own, guarded by the fence of an attempt.
--
--     begin;
--     insert into reservations (id) values (9182);
--     select windlass.assert_fence('01981c2e-7a40-7c1f-9d57-0242ac120002', 'reserve', 3);
--     commit;
--
-- Locks: the lease of the task, for key share and until the caller's transaction ends. Whoever
-- takes the task away deletes the lease: a sweep passes over it, a cancel waits. Before a lock
-- is taken, nothing keeps the answer true, so it is asked for last.
--
-- With the rights of the owner of the schema, as starts are. Errors have the codes of
-- docs/errors/ as their SQLSTATE: WL004 for a run or a task that is not there, WL005 for a call
-- that has another result, WL006 for a fence that is not that of the lease.

-- Fails unless the task is held under this fence, and keeps it so until the transaction ends.
create function windlass.assert_fence(run uuid, task text, fence bigint)
returns void language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
    place constant integer := (
        select d.idx
        from windlass.runs r
        join windlass.definition_tasks d on d.definition_id = r.definition_id
        where r.id = run and d.name = task
    );
begin
    if place is null then
        perform windlass.refuse(4, format('run %s has no task %s', run, to_json(task)));
    end if;
    perform from windlass.leases l
    where l.run_id = run and l.idx = place and l.fence = assert_fence.fence
    for key share;
    if not found then
        perform windlass.refuse(6, format(
            'task %s of run %s is not held under fence %s', to_json(task), run, fence
        ));
    end if;
end
$$;

-- Whether a task is held under this fence: `held`, `lost`, or `unknown` if there is no such run.
-- What is told may be over at once: it is for whoever asks again before the commit.
create function windlass.look_at_fence(run uuid, place integer, fence bigint)
returns text language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
select case
    when exists (
        select from windlass.leases l
        where l.run_id = run and l.idx = place and l.fence = look_at_fence.fence
    ) then 'held'
    when exists (select from windlass.runs r where r.id = run) then 'lost'
    else 'unknown'
end
$$;

-- Records the result of a step of a durable function in the transaction of its work.
create function windlass.record_step(
    run uuid, place integer, fence bigint, call integer, number integer, kind text, name text,
    value text
)
returns text language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
begin
    perform from windlass.leases l
    where l.run_id = run and l.idx = place and l.fence = record_step.fence
    for key share;
    if not found then
        perform windlass.refuse(6, format(
            'task %s of run %s is not held under fence %s', place, run, fence
        ));
    end if;
    insert into windlass.steps as s (run_id, idx, call, number, kind, name, failures, value)
    values (run, place, call, number, kind, name, 0, nullif(value, 'null')::json)
    on conflict on constraint steps_pkey do update
    set number = excluded.number, failures = excluded.failures, due = null, failure = null,
        value = excluded.value
    where s.number is null and s.kind = excluded.kind and s.name = excluded.name;
    if not found then
        perform windlass.refuse(5, format(
            'call %s of task %s of run %s is another one or has a result', call, place, run
        ));
    end if;
    return 'recorded';
end
$$;

-- What became of a transaction that recorded a step and whose end nobody heard of: `recorded`,
-- `open` if it was rolled back, `lost` if the task is not held under this fence any more. Waits
-- for its end, and so is asked at READ COMMITTED: what it has committed is seen after that.
create function windlass.find_step(run uuid, place integer, fence bigint, call integer)
returns text language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
begin
    perform from windlass.leases l
    where l.run_id = run and l.idx = place and l.fence = find_step.fence
    for update;
    if not found then
        return 'lost';
    end if;
    perform from windlass.steps s
    where s.run_id = run and s.idx = place and s.call = find_step.call and s.number is not null;
    return case when found then 'recorded' else 'open' end;
end
$$;

-- Once for each key: what a message asks for is done by the first of those who bring it, in the
-- transaction that also notes that it was. The scope of a key is the tenant, the workflow and the
-- task.
--
-- Locks: the row of the key, from the beginning until the caller's transaction ends, and at its end the
-- lease, as above. Nothing of the engine's locks rows of `handled`.

-- Begins: `first` if the work is to be done, `=` and the result if it has been, `lost` if the task is
-- not held under this fence, `unknown` if there is no such task. Waits for whoever is at it, for 20
-- seconds at most (SQLSTATE 55P03).
create function windlass.begin_once(
    run uuid, place integer, fence bigint, key text, keep interval
)
returns text language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set lock_timeout = 20000
as $$
declare
    whose text;
    what text;
    is_held boolean;
    known json;
begin
    select r.tenant, r.workflow || '/' || d.name,
        exists (
            select from windlass.leases l
            where l.run_id = run and l.idx = place and l.fence = begin_once.fence
        )
    into whose, what, is_held
    from windlass.runs r
    join windlass.definition_tasks d on d.definition_id = r.definition_id and d.idx = place
    where r.id = run;
    if not found then
        return 'unknown';
    end if;
    if not is_held then
        return 'lost';
    end if;
    insert into windlass.handled as h (tenant, scope, key, run_id, handled_at, expires_at)
    values (
        whose, what, begin_once.key, run, clock_timestamp(),
        least(clock_timestamp() + keep, '9999-12-31')
    )
    on conflict on constraint handled_pkey do update
    set run_id = excluded.run_id, handled_at = excluded.handled_at,
        expires_at = excluded.expires_at, value = null
    where h.expires_at <= clock_timestamp();
    if found then
        return 'first';
    end if;
    select h.value into known
    from windlass.handled h
    where h.tenant = whose and h.scope = what and h.key = begin_once.key;
    return '=' || coalesce(known::text, 'null');
end
$$;

-- Ends the work of the first, with what it gave: WL006 if the task is not held under this fence any
-- more, and so it stays until the transaction ends.
create function windlass.end_once(
    run uuid, place integer, fence bigint, key text, value text
)
returns text language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
begin
    perform from windlass.leases l
    where l.run_id = run and l.idx = place and l.fence = end_once.fence
    for key share;
    if not found then
        perform windlass.refuse(6, format(
            'task %s of run %s is not held under fence %s', place, run, fence
        ));
    end if;
    update windlass.handled h
    set value = nullif(end_once.value, 'null')::json
    from windlass.runs r
    join windlass.definition_tasks d on d.definition_id = r.definition_id and d.idx = place
    where r.id = run and h.tenant = r.tenant and h.scope = r.workflow || '/' || d.name
        and h.key = end_once.key;
    return 'done';
end
$$;

-- For those who write SQL themselves: whether this transaction is the first to handle the key. If it
-- is, it is noted so when the transaction commits; if it is not, there is nothing to do. Fails as
-- `assert_fence` does, and keeps the task held as that does: so call it right before the work, and
-- keep the work short.
--
--     begin;
--     select windlass.once('01981c2e-7a40-7c1f-9d57-0242ac120002', 'charge', 3, 'payment 9182');
--     -- Only if that was true:
--     insert into payments (id) values (9182);
--     commit;
create function windlass.once(
    run uuid, task text, fence bigint, key text, keep interval default interval '30 days'
)
returns boolean language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
    place constant integer := (
        select d.idx
        from windlass.runs r
        join windlass.definition_tasks d on d.definition_id = r.definition_id
        where r.id = run and d.name = task
    );
    problem constant text := windlass.name_problem('key', key, 400);
begin
    if problem is not null then
        perform windlass.refuse(2, problem);
    end if;
    if keep is null or keep <= interval '0' then
        perform windlass.refuse(2, format('key %s is to be kept for %s', to_json(key), keep));
    end if;
    perform windlass.assert_fence(run, task, fence);
    return windlass.begin_once(run, place, fence, key, keep) = 'first';
end
$$;

-- Forgets keys whose time is over, the oldest first and at most so many; answers how many. It passes
-- over those that someone is at. The duty `prune` calls it.
create function windlass.prune_handled(most integer default 1000)
returns bigint language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
    pruned bigint;
begin
    with old as materialized (
        select h.ctid as place
        from windlass.handled h
        where h.expires_at <= clock_timestamp()
        order by h.expires_at
        limit most
        for update skip locked
    ),
    gone as (
        delete from windlass.handled h
        where h.ctid = any(array(select o.place from old o))
        returning 1
    )
    select count(1) into pruned from gone;
    return pruned;
end
$$;

revoke execute on function
    windlass.assert_fence, windlass.look_at_fence, windlass.record_step, windlass.find_step,
    windlass.begin_once, windlass.end_once, windlass.once, windlass.prune_handled
from public;
