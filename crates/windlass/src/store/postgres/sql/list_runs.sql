-- A page of runs, the newest first.
--
-- $1 text: workflow   $2 text: tenant   $3 text: state   $4 text, $5 text: a pair of metadata
-- $6 timestamptz, $7 uuid: where the previous page ended   $8 bigint: how many
-- Each but the last is null for any.
--
-- The bytes of ids sort as the ids do; the index by age has the bytes, so that no lookup by id
-- can take it.
select r.id, r.workflow, r.version, r.tenant, r.state, r.round, r.open_tasks, r.priority,
    r.created_at, r.ended_at, r.key, r.metadata::text, r.input::text
from windlass.runs r
where ($1::text is null or r.workflow = $1)
    and ($2::text is null or r.tenant = $2)
    and ($3::text is null or r.state = $3)
    and ($4::text is null or r.metadata ->> $4 = $5)
    and (r.created_at, uuid_send(r.id))
        < (coalesce($6::timestamptz, 'infinity'), coalesce(uuid_send($7::uuid), ''))
order by r.created_at desc, uuid_send(r.id) desc
limit $8;
