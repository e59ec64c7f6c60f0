-- The signals to keys that nobody has taken and that have not expired, the oldest first.
--
-- $1 text[], $2 text[], $3 text[]: tenants, keys and names, of mailboxes that the caller has locked
-- $4 bigint[]: how many of each   $5 timestamptz: the time
select s.tenant, s.key, s.name, s.id, s.value::text as value
from unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) as k (tenant, key, name, most)
cross join lateral (
    select x.tenant, x.key, x.name, x.seq, x.id, x.value
    from windlass.key_signals x
    where x.tenant = k.tenant and x.key = k.key and x.name = k.name and not x.is_taken
        and (x.expires_at > $5) is true
    order by x.seq
    limit k.most
) s
order by s.seq;
