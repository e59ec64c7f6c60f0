-- G3.one-completion: at most one write of a worker is accepted for a fence
--
-- A worker ends its lease by finishing the task, in one way or another, or by handing it
-- back. Each accepted write is an event out of `running` with the fence of the lease; two
-- with one fence are a completion that counted twice.
select
    case
        when count(1) > 1 then
            format(
                'task %s/%s: %s writes with fence %s were accepted: %s', e.run_id, e.idx, count(1),
                e.fence, string_agg(e.kind, ', ' order by e.id)
            )
    end as problem
from windlass.events e
where
    e.idx is not null
    and e.from_state = 'running'
    and e.kind in ('succeeded', 'failed', 'retrying', 'skipped', 'released', 'parked', 'continued')
    and {scope e.run_id}
group by e.run_id, e.idx, e.fence
