-- Makes a token known, if there is room, unless there is one of this id. Those that have held no more
-- for long go.
--
-- $1 text: the id   $2 bytea: the tag   $3 text: the name   $4 text[]: roles
-- $5 text: the tenant, null for all   $6 timestamptz: the end, null for never
-- $7 timestamptz: the time, null for the clock's   $8 bigint: the most   $9 bigint: how long those
-- that are over are kept, in microseconds
with gone as (
    delete from windlass.tokens t
    where least(t.revoked_at, t.expires_at)
        <= coalesce($7::timestamptz, clock_timestamp()) - $9::bigint * interval '1 microsecond'
)
insert into windlass.tokens (id, tag, name, roles, tenant, expires_at, created_at)
select $1, $2, $3, $4, $5, $6, coalesce($7::timestamptz, clock_timestamp())
where (select count(*) from windlass.tokens) < $8
on conflict (id) do nothing
returning id;
