-- Locks mailboxes until the end of the transaction, so that a signal comes either before or after
-- whoever looks for it. Many keys share one lock; they are taken in the order of their numbers.
-- The caller has locked its runs.
--
-- $1 text[], $2 text[]: tenants and keys
select pg_advisory_xact_lock(1464421957, n.n)
from (
    select distinct hashtext(k.tenant || ' ' || k.key) & 127 as n
    from unnest($1::text[], $2::text[]) as k (tenant, key)
    order by n
    offset 0
) n;
