-- G10.early: no lease is taken away before it ran out
--
-- The event of a lease that expired says until when it lasted. A task that was taken away
-- earlier runs twice although its worker was alive and on time.
select
    case
        when extract(epoch from e.at) * 1000000 < (e.detail ->> 'lease_until')::numeric then
            format(
                'task %s/%s: event %s of %s took away a lease that lasted until %s µs', e.run_id,
                e.idx, e.id, e.at, e.detail ->> 'lease_until'
            )
        when e.detail ->> 'lease_until' is null then
            format('task %s/%s: event %s does not say until when the lease lasted', e.run_id,
                e.idx, e.id)
    end as problem
from windlass.events e
where e.idx is not null and e.kind = 'lease_expired' and {scope e.run_id}
