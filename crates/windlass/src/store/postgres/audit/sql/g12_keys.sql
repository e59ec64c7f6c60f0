-- G12.keys: one run per tenant, workflow and idempotency key
--
-- The unique index should make this impossible; an index that is damaged, or that was made
-- anew over rows it should have refused, would not.
select
    case
        when count(1) > 1 then
            format(
                'key "%s" of tenant "%s" and workflow "%s" names %s runs: %s', r.key, r.tenant,
                r.workflow, count(1), string_agg(r.id::text, ', ' order by r.id)
            )
    end as problem
from windlass.runs r
where r.key is not null and {scope r.id}
group by r.tenant, r.workflow, r.key
