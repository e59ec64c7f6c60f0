-- A page of dead letters, the newest first.
--
-- $1 text: tenant   $2 text: workflow   $3 text: task   $4 text: reason   $5 timestamptz: since
-- $6 timestamptz: until   $7 timestamptz, $8 uuid, $9 bigint: where the previous page ended
-- $10 bigint: how many. Each but the last is null for any.
--
-- The index by age has the bytes of ids, which sort as they do, so that no lookup by task can
-- take it.
select d.run_id, d.idx, d.round, d.version, d.attempts, d.failed_at, d.tenant, d.workflow, d.task,
    d.queue, d.failure::text as failure, d.lanes::text as lanes
from windlass.dead_letters d
where ($1::text is null or d.tenant = $1)
    and ($2::text is null or d.workflow = $2)
    and ($3::text is null or d.task = $3)
    and ($4::text is null or d.reason = $4)
    and d.failed_at >= coalesce($5::timestamptz, '-infinity')
    and d.failed_at < coalesce($6::timestamptz, 'infinity')
    and (d.failed_at, uuid_send(d.run_id), d.idx::bigint) < (
        coalesce($7::timestamptz, 'infinity'), coalesce(uuid_send($8::uuid), ''),
        coalesce($9::bigint, 0)
    )
order by d.failed_at desc, uuid_send(d.run_id) desc, d.idx::bigint desc
limit $10;
