-- What was said when a run was cancelled, if one of the newest 100 entries of its history says so.
--
-- $1 uuid: the run
select e.detail::text
from windlass.events e
where e.run_id = $1
    and e.entry >= (
        select min(h.id)
        from (
            select x.id from windlass.history x where x.run_id = $1 order by x.id desc limit 100
        ) h
    )
    and e.kind = 'run_cancelled'
order by e.id desc
limit 1;
