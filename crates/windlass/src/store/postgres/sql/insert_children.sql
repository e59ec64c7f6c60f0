-- Notes who started whom: a run has one parent, and a place of a call one child, the first.
--
-- $1 uuid[]: the runs that were started   $2 uuid[], $3 int[]: the tasks that did
-- $4 int[]: their calls   $5 int[]: places among the children of a call
insert into windlass.children (child_id, run_id, idx, call, place)
select k.child_id, k.run_id, k.idx, k.call, k.place
from unnest($1::uuid[], $2::uuid[], $3::integer[], $4::integer[], $5::integer[])
    as k (child_id, run_id, idx, call, place)
order by k.child_id
on conflict do nothing;
