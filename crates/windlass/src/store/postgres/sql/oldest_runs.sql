-- Runs by their age, the oldest first, to see which of them are to go.
--
-- $1 timestamptz, $2 uuid: behind which to look, null for the first   $3 timestamptz: only those
-- that were started before   $4 bigint: how many
select r.id, r.workflow, r.state, r.created_at, r.ended_at
from windlass.runs r
where r.created_at < $3
    and (r.created_at, uuid_send(r.id))
        > (coalesce($1::timestamptz, '-infinity'), coalesce(uuid_send($2::uuid), ''))
order by r.created_at, uuid_send(r.id)
limit $4;
