-- A page of tokens, the newest first.
--
-- $1 text: the tenant   $2 timestamptz, $3 text: where the previous page ended   $4 bigint: how many
-- Each but the last is null for any.
select t.id, t.name, t.roles, t.tenant, t.created_at, t.expires_at, t.last_used_at, t.revoked_at
from windlass.tokens t
where ($1::text is null or t.tenant = $1)
    and (t.created_at, t.id) < (coalesce($2::timestamptz, 'infinity'), coalesce($3::text, ''))
order by t.created_at desc, t.id desc
limit $4;
