-- Notes that signals to keys were taken; what they say is in the steps that took them.
--
-- $1 text[], $2 text[], $3 text[], $4 bigint[]: the signals, by tenant, key, name and place, of
-- mailboxes that the caller has locked and in which it has seen them wait
update windlass.key_signals s
set is_taken = true, value = 'null'
where s.ctid = any(array(
    select p.place
    from unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) as k (tenant, key, name, seq)
    cross join lateral (
        select x.ctid as place
        from windlass.key_signals x
        where x.tenant = k.tenant and x.key = k.key and x.name = k.name and x.seq = k.seq
            and not x.is_taken
        offset 0
    ) p
));
