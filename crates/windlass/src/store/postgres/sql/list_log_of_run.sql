-- A page of what operators did to a run, the newest first.
--
-- $1 uuid: the run   $2 text: what   $3 text: who   $4 bigint: only with a smaller number
-- $5 bigint: how many   $6 text: about whom. Each but the first and the fifth is null for any.
--
-- The index of the runs is asked first: few entries are about one run.
with about as materialized (
    select l.number, l.id, l.at, l.operator, l.action, l.tenant, l.runs, l.detail::text as detail,
        l.token, l.origin
    from windlass.operator_log l
    where l.runs @> array[$1::uuid]
)
select a.number, a.id, a.at, a.operator, a.action, a.tenant, a.runs, a.detail, a.token,
    a.origin
from about a
where ($2::text is null or a.action = $2)
    and ($3::text is null or a.operator = $3)
    and ($6::text is null or a.tenant = $6)
    and a.number < coalesce($4::bigint, 9223372036854775807)
order by a.number desc
limit $5;
