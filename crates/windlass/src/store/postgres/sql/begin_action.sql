-- Begins an entry of the operators' log, unless there is one of this id: whoever else writes it
-- is waited for.
--
-- Locks: the entry, before any run.
--
-- $1 uuid: the id   $2 text: who   $3 text: what   $4 text: the tenant, null for any
-- $5 timestamptz: the time, null for the clock's   $6 text: the token   $7 text: from where
insert into windlass.operator_log (id, operator, action, tenant, at, token, origin)
values ($1, $2, $3, $4, coalesce($5::timestamptz, clock_timestamp()), $6, $7)
on conflict (id) do nothing
returning id;
