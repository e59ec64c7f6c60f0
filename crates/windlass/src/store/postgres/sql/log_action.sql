-- Writes an entry of the operators' log, unless there is one of this id.
--
-- $1 uuid: the id   $2 text: who   $3 text: what   $4 text: the tenant, null for any
-- $5 timestamptz: the time, null for the clock's   $6 uuid: the run, null for none
-- $7 text: what else, as JSON   $8 text: the token   $9 text: from where
insert into windlass.operator_log (id, operator, action, tenant, at, runs, detail, token, origin)
values (
    $1, $2, $3, $4, coalesce($5::timestamptz, clock_timestamp()),
    array_remove(array[$6::uuid], null), $7::json, $8, $9
)
on conflict (id) do nothing
returning id;
