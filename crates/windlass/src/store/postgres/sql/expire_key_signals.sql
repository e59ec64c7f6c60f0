-- Deletes signals to keys that have expired, the earliest first, and passes over those that others
-- have locked.
--
-- $1 timestamptz: the time   $2 bigint: how many
delete from windlass.key_signals
where ctid = any(array(
    select x.ctid
    from windlass.key_signals x
    where x.expires_at <= $1
    order by x.expires_at
    limit $2
    for update skip locked
));
