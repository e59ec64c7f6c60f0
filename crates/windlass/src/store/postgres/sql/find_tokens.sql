-- Tokens by their ids, with what their secrets are checked against.
--
-- $1 text[]: ids   $2 timestamptz: the time, null for the clock's
select t.id, t.tag, t.name, t.roles, t.tenant, t.created_at, t.expires_at, t.last_used_at,
    t.revoked_at, coalesce($2::timestamptz, clock_timestamp()) as at
from windlass.tokens t
where t.id = any($1);
