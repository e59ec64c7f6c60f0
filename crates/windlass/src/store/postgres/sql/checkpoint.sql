-- Keeps checkpoints, and notes in the leases of their tasks that there are some.
--
-- It updates by physical place, which cannot turn into a scan of the table.
--
-- $1 uuid[], $2 int[]: the tasks, each once, whose runs the caller has locked and which are
-- leased   $3 bigint[]: the fences of their leases   $4 text[]: values
with noted as (
    update windlass.leases
    set has_checkpoint = true
    where ctid = any(array(
        select p.place
        from unnest($1::uuid[], $2::integer[]) as k (run_id, idx)
        cross join lateral (
            select x.ctid as place
            from windlass.leases x
            where x.run_id = k.run_id and x.idx = k.idx and x.has_checkpoint is null
            offset 0
        ) p
    ))
)
insert into windlass.checkpoints (run_id, idx, fence, value)
select k.run_id, k.idx, k.fence, k.value::json
from unnest($1::uuid[], $2::integer[], $3::bigint[], $4::text[]) as k (run_id, idx, fence, value)
order by k.run_id, k.idx
on conflict (run_id, idx) do update
set fence = excluded.fence, value = excluded.value;
