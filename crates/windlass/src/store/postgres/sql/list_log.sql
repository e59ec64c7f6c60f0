-- A page of the operators' log, the newest first.
--
-- $1 text: what   $2 text: who   $3 bigint: only with a smaller number   $4 bigint: how many
-- $5 text: about whom
-- Each but the fourth is null for any.
select l.number, l.id, l.at, l.operator, l.action, l.tenant, l.runs, l.detail::text as detail,
    l.token, l.origin
from windlass.operator_log l
where ($1::text is null or l.action = $1)
    and ($2::text is null or l.operator = $2)
    and ($5::text is null or l.tenant = $5)
    and l.number < coalesce($3::bigint, 9223372036854775807)
order by l.number desc
limit $4;
