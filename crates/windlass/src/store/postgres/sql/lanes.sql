-- All lanes behind a number. There are as many as combinations of queue, priority and
-- version of a workflow ever were.
--
-- $1 int: the number
select l.id, l.level_id, v.queue, v.priority, l.workflow, l.version
from windlass.lanes l
join windlass.levels v on v.id = l.level_id
where l.id > $1
order by l.id;
