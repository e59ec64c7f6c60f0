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
    /// Writes runs of the first task of the definition and the route that are there.
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
    d.id as definition_id, d.workflow, d.version, l.id as route_id, l.level_id
from generate_series(1, {all}) n
join (
    select t.id, t.name, row_number() over (order by t.id) - 1 as number
    from windlass.tenants t where t.name like 'filled %'
) t on t.number = n % {tenants},
    (select * from windlass.definitions order by id limit 1) d,
    (select * from windlass.routes order by id limit 1) l
order by n;

insert into windlass.runs
    (id, definition_id, workflow, version, tenant, state, open_tasks, created_at, ended_at, input)
select f.id, f.definition_id, f.workflow, f.version, f.tenant,
    case when f.is_ready then 'running' else 'succeeded' end, f.is_ready::integer,
    now(), case when not f.is_ready then now() end, to_json(f.n)
from filled f;

insert into windlass.task_rows (run_id, idx, state, fence, attempt, pending_parents,
    failed_parents, skipped_parents)
select f.id, 0, 'succeeded', 1, 1, 0, 0, 0 from filled f where not f.is_ready;

insert into windlass.history (run_id, at, lines)
select f.id, now(), h.lines
from filled f
cross join (values
    (1, E'- run_started - running - -\\n0 queued pending ready 0 0'),
    (2, '0 started ready running 1 1'),
    (3, E'0 succeeded running succeeded 1 1\\n- run_ended running succeeded - -')
) h (number, lines)
where not f.is_ready or h.number = 1
order by f.n, h.number;

insert into windlass.ready (run_id, idx, definition_id, route_id, level_id, tenant_id, tag, seq,
    fence, attempt, max_attempts)
select f.id, 0, f.definition_id, f.route_id, f.level_id, f.tenant_id,
    (f.turn + 1) * 1048576::bigint + f.tenant_id, nextval('windlass.ready_seq'), 0, 0, 3
from filled f where f.is_ready;
commit;"
            ))
            .await
    }
}
