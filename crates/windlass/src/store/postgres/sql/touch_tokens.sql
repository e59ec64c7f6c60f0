-- Notes that tokens were used, but for those that someone else has locked: the next time will do.
--
-- $1 text[]: ids   $2 timestamptz: the time, null for the clock's
with free as (
    select t.id from windlass.tokens t where t.id = any($1) for update skip locked
)
update windlass.tokens t
set last_used_at = coalesce($2::timestamptz, clock_timestamp())
where t.id = any(array(select free.id from free));
