-- Returns a page of the runs of all tenants, newest first, without inputs.
--
-- $1 text: workflow   $2 text: state   $3 text, $4 text: a metadata pair
-- $5 timestamptz, $6 uuid: end of the previous page   $7 bigint: how many
-- Each but the last is null for any. Locks nothing.
--
-- The bytes of ids sort as the ids do; the index by age has the bytes, so that no lookup by id
-- can take it.
select r.id, r.workflow, r.version, r.tenant, r.state, r.round, r.open_tasks, r.priority,
    r.created_at, r.ended_at, r.key, r.metadata::text
from windlass.runs r
where ($1::text is null or r.workflow = $1)
    and ($2::text is null or r.state = $2)
    and ($3::text is null or r.metadata ->> $3 = $4)
    and (r.created_at, uuid_send(r.id))
        < (coalesce($5::timestamptz, 'infinity'), coalesce(uuid_send($6::uuid), ''))
order by r.created_at desc, uuid_send(r.id) desc
limit $7;
