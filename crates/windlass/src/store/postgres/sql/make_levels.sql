-- Makes levels known.
--
-- $1 text[]: queues   $2 smallint[]: priorities
insert into windlass.levels (queue, priority)
select distinct k.queue, k.priority
from unnest($1::text[], $2::smallint[]) as k (queue, priority)
where not exists (
    select from windlass.levels v where v.queue = k.queue and v.priority = k.priority
)
order by k.queue, k.priority
on conflict do nothing;
