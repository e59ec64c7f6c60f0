-- G1.staged: a staged run is staged once, and nothing of it has begun
--
-- Admission makes the first tasks of a staged run ready and takes it off the list, in one
-- transaction. A run that is on the list twice, or has tasks that are not pending, would be
-- admitted a second time. One that was cancelled before its admission stays on the list
-- until then and is only forgotten.
select
    case
        when s.times > 1 then format('run %s is staged %s times', s.run_id, s.times)
        when r.state not in ('running', 'cancelled') then
            format('run %s is staged and %s', s.run_id, r.state)
        when r.state = 'running' and t.begun > 0 then
            format('run %s is staged and has %s tasks that are not pending', s.run_id, t.begun)
    end as problem
from (
    select s.run_id, count(1) as times
    from windlass.staged s
    where s.purpose is null
    group by s.run_id
) s
join windlass.runs r on r.id = s.run_id
cross join lateral (
    select count(1) as begun
    from windlass.tasks t
    where t.run_id = s.run_id and t.state <> 'pending'
) t
where {scope s.run_id}
