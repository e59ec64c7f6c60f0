-- Signals to keys that functions ask for: the oldest that nobody has taken and that have not
-- expired, in their order and with what they say; the newest of them; and the places of those that
-- functions were told of.
--
-- $1 text[], $2 text[], $3 text[]: tenants, keys and names, of mailboxes that the caller has locked
-- $4 bigint[]: how many of each   $5 boolean[]: whether the newest is asked for
-- $6 text[], $7 text[], $8 uuid[]: those that were told, by tenant, key and id
-- $9 timestamptz: the time
select s.tenant, s.key, s.name, s.seq, s.id, s.value::text as value, false as is_newest
from unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) as k (tenant, key, name, most)
cross join lateral (
    select x.tenant, x.key, x.name, x.seq, x.id, x.value
    from windlass.key_signals x
    where x.tenant = k.tenant and x.key = k.key and x.name = k.name and not x.is_taken
        and (x.expires_at > $9) is true
    order by x.seq
    limit k.most
) s
union all
select n.tenant, n.key, n.name, n.seq, n.id, null, true
from unnest($1::text[], $2::text[], $3::text[], $5::boolean[]) as k (tenant, key, name, is_asked)
cross join lateral (
    select x.tenant, x.key, x.name, x.seq, x.id
    from windlass.key_signals x
    where k.is_asked and x.tenant = k.tenant and x.key = k.key and x.name = k.name
        and not x.is_taken and (x.expires_at > $9) is true
    order by x.seq desc
    limit 1
) n
union all
select t.tenant, t.key, t.name, t.seq, t.id, null, false
from unnest($6::text[], $7::text[], $8::uuid[]) as k (tenant, key, id)
cross join lateral (
    select x.tenant, x.key, x.name, x.seq, x.id
    from windlass.key_signals x
    where x.tenant = k.tenant and x.key = k.key and x.id = k.id
    offset 0
) t
order by seq;
