//! Much work in a database, made by the database itself; shared by tests and benchmarks.

use tokio_postgres::Client;

/// What to fill a database with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fill {
    /// Runs of one task that succeeded.
    pub(crate) finished: u32,
    /// Runs of one task that is ready, fairly dealt to the tenants.
    pub(crate) ready: u32,
    /// Tenants besides those that are there.
    pub(crate) tenants: u32,
}

impl Fill {
    /// Writes runs of the first task of the definition and the lane that are there.
    pub(crate) async fn write(self, client: &Client) -> Result<(), tokio_postgres::Error> {
        let Fill { finished, ready, tenants } = self;
        let all = finished + ready;
        client
            .batch_execute(&format!(
                "
begin;
insert into windlass.tenants (name)
select 'filled ' || n from generate_series(1, {tenants}) n;

create temp table filled on commit drop as
select n,
    ('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid as id,
    n > {finished} as is_ready,
    t.id as tenant_id, t.name as tenant,
    n / {tenants} as turn,
    d.id as definition_id, d.workflow, d.version, l.id as lane_id, l.level_id
from generate_series(1, {all}) n
join (
    select t.id, t.name, row_number() over (order by t.id) - 1 as number
    from windlass.tenants t where t.name like 'filled %'
) t on t.number = n % {tenants},
    (select * from windlass.definitions order by id limit 1) d,
    (select * from windlass.lanes order by id limit 1) l
order by n;

insert into windlass.runs
    (id, definition_id, workflow, version, tenant, state, open_tasks, created_at, ended_at)
select f.id, f.definition_id, f.workflow, f.version, f.tenant,
    case when f.is_ready then 'running' else 'succeeded' end, f.is_ready::integer,
    now(), case when not f.is_ready then now() end
from filled f;

insert into windlass.inputs (run_id, input)
select f.id, to_json(f.n) from filled f;

insert into windlass.tasks (run_id, idx, state, fence, attempt, max_attempts, pending_parents)
select f.id, 0, case when f.is_ready then 'active' else 'succeeded' end,
    (not f.is_ready)::integer, (not f.is_ready)::integer, 3, 0
from filled f;

insert into windlass.outputs (run_id, idx, output)
select f.id, 0, 'null' from filled f where not f.is_ready;

insert into windlass.events (run_id, at, kind, idx, from_state, to_state, fence, attempt)
select f.id, now(), e.kind, e.idx, e.from_state, e.to_state, e.fence, e.fence
from filled f
cross join (values
    (1, 'run_started', null::integer, null, 'running', null::integer),
    (2, 'queued', 0, 'pending', 'ready', 0),
    (3, 'started', 0, 'ready', 'running', 1),
    (4, 'succeeded', 0, 'running', 'succeeded', 1),
    (5, 'run_ended', null, 'running', 'succeeded', null)
) e (number, kind, idx, from_state, to_state, fence)
where not f.is_ready or e.number <= 2
order by f.n, e.number;

insert into windlass.ready (run_id, idx, definition_id, lane_id, level_id, tenant_id, tag, seq,
    fence, attempt, max_attempts)
select f.id, 0, f.definition_id, f.lane_id, f.level_id, f.tenant_id,
    (f.turn + 1) * 1048576::bigint + f.tenant_id, nextval('windlass.ready_seq'), 0, 0, 3
from filled f where f.is_ready;
commit;"
            ))
            .await
    }
}
