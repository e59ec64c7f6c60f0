-- Locks those of some workers that nobody else has locked.
--
-- $1 uuid[]: the workers, each once
select w.id, w.state, w.is_draining, w.lease_micros
from unnest($1::uuid[]) as k (id)
cross join lateral (
    select x.id, x.state, x.is_draining,
        (extract(epoch from x.lease) * 1000000)::bigint as lease_micros
    from windlass.workers x
    where x.id = k.id
    for no key update skip locked
) w;
