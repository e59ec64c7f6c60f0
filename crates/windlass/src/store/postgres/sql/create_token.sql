-- Makes a token known, if there is room, unless there is one of this id.
--
-- $1 text: the id   $2 bytea: the tag   $3 text: the name   $4 text[]: roles
-- $5 text: the tenant, null for all   $6 timestamptz: the end, null for never
-- $7 timestamptz: the time, null for the clock's   $8 bigint: the most of one tenant
insert into windlass.tokens (id, tag, name, roles, tenant, expires_at, created_at)
select $1, $2, $3, $4, $5, $6, coalesce($7::timestamptz, clock_timestamp())
where (select count(*) from windlass.tokens t where t.tenant is not distinct from $5) < $8
on conflict (id) do nothing
returning id;
