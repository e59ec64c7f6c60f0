-- Hands the marks of a worker that is no more to the row that all such share.
--
-- $1 uuid: the worker
with left_marks as (
    delete from windlass.marks m where m.worker_id = $1 returning m.level_id, m.tag
)
insert into windlass.marks (level_id, worker_id, tag)
select m.level_id, '00000000-0000-0000-0000-000000000000', m.tag
from left_marks m
order by m.level_id
on conflict (level_id, worker_id) do update
set tag = greatest(marks.tag, excluded.tag);
