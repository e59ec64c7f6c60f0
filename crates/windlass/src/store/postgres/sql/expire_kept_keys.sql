-- Deletes idempotency keys of runs that are gone, whose time is over, the earliest first, and
-- passes over those that others have locked. A row for each.
--
-- $1 timestamptz: the time   $2 bigint: how many
delete from windlass.kept_keys
where ctid = any(array(
    select x.ctid
    from windlass.kept_keys x
    where x.expires_at <= $1
    order by x.expires_at
    limit $2
    for update skip locked
))
returning expires_at;
