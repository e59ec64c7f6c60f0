-- Forgets lanes in which nobody is and of which nothing is to be remembered. Whoever comes to one
-- meanwhile takes it for one in which nobody is, with or without its row.
--
-- $1 timestamptz: now   $2 bigint: how many at most
delete from windlass.lanes
where ctid = any(array(
    select l.ctid
    from windlass.lanes l
    where l.forget_at <= $1
    order by l.forget_at
    limit $2
    for update skip locked
));
