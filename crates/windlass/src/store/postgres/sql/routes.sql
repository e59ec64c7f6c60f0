-- All routes. There are as many as combinations of queue, priority and version of a workflow
-- ever were, and of buckets where tasks have owners.
select l.id, l.level_id, v.queue, v.priority, l.workflow, l.version, l.bucket
from windlass.routes l
join windlass.levels v on v.id = l.level_id
order by l.id;
