-- Forgets tokens that have held no more for long, and of whoever has as many as it may have those that
-- ended first, so that there is room for one more.
--
-- $1 text: the tenant, null for those of all   $2 timestamptz: the time, null for the clock's
-- $3 bigint: the most of one tenant   $4 bigint: how long those that are over are kept, in microseconds
delete from windlass.tokens t
where least(t.revoked_at, t.expires_at)
        <= coalesce($2::timestamptz, clock_timestamp()) - $4::bigint * interval '1 microsecond'
    or t.id = any(array(
        select o.id from windlass.tokens o
        where o.tenant is not distinct from $1
            and least(o.revoked_at, o.expires_at) <= coalesce($2::timestamptz, clock_timestamp())
        order by least(o.revoked_at, o.expires_at), o.id
        limit greatest(0, 1 - $3::bigint + (
            select count(*) from windlass.tokens c where c.tenant is not distinct from $1
        ))
    ));
