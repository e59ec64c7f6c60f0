-- Returns a page of the runs of one tenant, newest first, without inputs.
--
-- $1 text: workflow   $2 text: state   $3 text, $4 text: a metadata pair
-- $5 timestamptz, $6 uuid: end of the previous page   $7 bigint: how many   $8 text: tenant
-- Each but the last two is null for any. Locks nothing.
--
-- The order has the expression of the index by tenant, which no other index has. The condition on
-- `created_at` alone is the one that PostgreSQL may use in the index behind row-level security.
select r.id, r.workflow, r.version, r.tenant, r.state, r.round, r.open_tasks, r.priority,
    r.created_at, r.ended_at, r.key, r.metadata::text
from windlass.runs r
where r.tenant collate "C" = $8
    and ($1::text is null or r.workflow = $1)
    and ($2::text is null or r.state = $2)
    and ($3::text is null or r.metadata ->> $3 = $4)
    and r.created_at <= coalesce($5::timestamptz, 'infinity')
    and (r.created_at, uuid_send(r.id) || ''::bytea)
        < (coalesce($5::timestamptz, 'infinity'), coalesce(uuid_send($6::uuid), ''))
order by r.created_at desc, uuid_send(r.id) || ''::bytea desc
limit $7;
