-- Those of some mailboxes in which a signal waits that has not expired.
--
-- $1 text[], $2 text[], $3 text[]: tenants, keys and names, which the caller has locked
-- $4 timestamptz: the time
select k.tenant, k.key, k.name
from unnest($1::text[], $2::text[], $3::text[]) as k (tenant, key, name)
cross join lateral (
    select x.seq
    from windlass.key_signals x
    where x.tenant = k.tenant and x.key = k.key and x.name = k.name and not x.is_taken
        and (x.expires_at > $4) is true
    order by x.seq
    limit 1
) s;
