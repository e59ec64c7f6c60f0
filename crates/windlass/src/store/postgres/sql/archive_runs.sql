-- Puts what is known of runs into the archive.
--
-- $1 uuid[]: the runs, which the caller has locked   $2 timestamptz: the time
insert into windlass.archived_runs (
    id, version, created_at, ended_at, archived_at, workflow, tenant, state, body
)
select
    r.id, r.version, r.created_at, r.ended_at, $2, r.workflow, r.tenant, r.state,
    json_build_object(
        'input', r.input,
        'key', r.key,
        'metadata', coalesce(r.metadata, '{}'),
        'round', r.round,
        'tasks', (
            select json_agg(
                json_build_object(
                    'name', t.name, 'state', t.state, 'attempt', t.attempt, 'output', t.output,
                    'failure', t.failure
                )
                order by t.idx
            )
            from windlass.task_states t
            where t.run_id = r.id
        ),
        'history', (
            select json_agg(
                json_build_object(
                    'at', (extract(epoch from e.at) * 1000000)::bigint, 'kind', e.kind,
                    'task', e.idx, 'from', e.from_state, 'to', e.to_state, 'fence', e.fence,
                    'attempt', e.attempt, 'detail', e.detail
                )
                order by e.id
            )
            from windlass.events e
            where e.run_id = r.id
        )
    )
from windlass.runs r
where r.id = any($1)
on conflict (id) do update
set version = excluded.version, created_at = excluded.created_at, ended_at = excluded.ended_at,
    archived_at = excluded.archived_at, workflow = excluded.workflow, tenant = excluded.tenant,
    state = excluded.state, body = excluded.body;
