-- G2.rounds: a run's round is one more than its retries, and than its beginnings afresh
--
-- A repeated retry is known by the round it names. A round that does not count the retries
-- would answer a repetition with another retry, or refuse a first one.
select
    case
        when r.round <> 1 + coalesce(e.retries, 0) then
            format('run %s is in round %s after %s retries or beginnings afresh', r.id, r.round, coalesce(e.retries, 0))
    end as problem
from windlass.runs r
left join (
    select e.run_id, count(1) as retries
    from windlass.events e
    where e.kind in ('run_retried', 'run_continued') and {scope e.run_id}
    group by e.run_id
) e on e.run_id = r.id
where {scope r.id}
