-- What is known of the calls of a durable function, in their order.
--
-- $1 uuid, $2 int: the task   $3 int: behind which call   $4 bigint: how many
select s.run_id, s.idx, s.call, s.number, s.kind, s.name, s.failures, s.due,
    s.value::text as value, s.failure::text as failure, s.children_max, s.key
from windlass.steps s
where s.run_id = $1 and s.idx = $2 and s.call > $3
order by s.call
limit $4;
