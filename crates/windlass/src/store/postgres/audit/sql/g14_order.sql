-- G14.order: every result of a function has a place of its own
--
-- A function that is run again learns of its results in the order of their places. Two results
-- in one place would come in one order at one time and in another at another.
select
    case
        when count(1) > 1 then
            format(
                'task %s/%s: the calls %s have the place %s', s.run_id, s.idx,
                string_agg(s.call::text, ', ' order by s.call), s.number
            )
    end as problem
from windlass.steps s
where s.number is not null and {scope s.run_id}
group by s.run_id, s.idx, s.number
