-- Keeps notes on progress, of tasks that are leased with these fences.
--
-- $1 uuid[], $2 int[]: the tasks   $3 bigint[]: fences   $4 text[]: notes
insert into windlass.notes (run_id, idx, fence, note)
select k.run_id, k.idx, k.fence, k.note::json
from unnest($1::uuid[], $2::integer[], $3::bigint[], $4::text[]) as k (run_id, idx, fence, note)
cross join lateral (
    select from windlass.leases l
    where l.run_id = k.run_id and l.idx = k.idx and l.fence = k.fence
    offset 0
) l
order by k.run_id, k.idx
on conflict (run_id, idx) do update
set fence = excluded.fence, note = excluded.note;
