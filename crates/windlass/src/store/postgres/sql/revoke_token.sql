-- Lets a token hold no more.
--
-- $1 text: the id   $2 timestamptz: the time, null for the clock's
update windlass.tokens t
set revoked_at = coalesce(t.revoked_at, $2::timestamptz, clock_timestamp())
where t.id = $1
returning t.id, t.name, t.roles, t.tenant, t.created_at, t.expires_at, t.last_used_at, t.revoked_at;
