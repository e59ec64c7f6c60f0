-- Makes routes known, whose levels are.
--
-- $1 text[]: queues   $2 smallint[]: priorities   $3 text[]: workflows   $4 int[]: versions
-- $5 smallint[]: buckets, -1 for none
insert into windlass.routes (level_id, workflow, version, bucket)
select distinct v.id, k.workflow, k.version, k.bucket
from unnest($1::text[], $2::smallint[], $3::text[], $4::integer[], $5::smallint[])
    as k (queue, priority, workflow, version, bucket)
join windlass.levels v on v.queue = k.queue and v.priority = k.priority
where not exists (
    select from windlass.routes l
    where l.workflow = k.workflow and l.version = k.version and l.level_id = v.id
        and l.bucket = k.bucket
)
order by v.id, k.workflow, k.version, k.bucket
on conflict do nothing;
