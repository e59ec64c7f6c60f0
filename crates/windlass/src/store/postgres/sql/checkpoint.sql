-- Keeps checkpoints, and notes in the leases of their tasks that there are some. One whose number
-- is not above that of the same fence which is kept came late: the newer one stands.
--
-- It updates by physical place, which cannot turn into a scan of the table.
--
-- $1 uuid[], $2 int[]: the tasks, each once, whose runs the caller has locked and which are
-- leased   $3 bigint[]: the fences of their leases   $4 int[]: numbers, 0 for none
-- $5 text[]: values
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
insert into windlass.checkpoints as c (run_id, idx, fence, number, number_fence, value)
select k.run_id, k.idx, k.fence, k.number, k.fence, k.value::json
from unnest($1::uuid[], $2::integer[], $3::bigint[], $4::integer[], $5::text[])
    as k (run_id, idx, fence, number, value)
order by k.run_id, k.idx
on conflict (run_id, idx) do update
set fence = excluded.fence, number = excluded.number, number_fence = excluded.number_fence,
    value = excluded.value
where excluded.number = 0
    -- Nobody has numbered this fence yet, whoever has written under it.
    or c.number_fence < excluded.fence
    or c.number < excluded.number;
