-- The tasks of runs whose functions wait for children of which enough have ended.
--
-- $1 uuid[]: the runs, which the caller has locked
select distinct s.run_id, s.idx
from windlass.steps s
where s.run_id = any($1) and s.number is null and s.children_max is not null
    and s.children_max >= (
        select count(1)
        from (
            select c.child_id
            from windlass.children c
            where c.run_id = s.run_id and c.idx = s.idx and c.call = s.call
                and c.has_ended is null
            limit s.children_max::bigint + 1
        ) c
    )
order by s.run_id, s.idx;
