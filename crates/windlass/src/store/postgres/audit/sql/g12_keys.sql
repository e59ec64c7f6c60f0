-- G12.keys: one run per tenant, workflow and idempotency key, also while the key is kept
--
-- The unique index should make this impossible; an index that is damaged, or that was made
-- anew over rows it should have refused, would not. The key of a run that is gone is kept for a
-- while, in which nobody may start another.
select
    case
        when count(1) > 1 then
            format(
                'key "%s" of tenant "%s" and workflow "%s" names %s runs: %s', r.key, r.tenant,
                r.workflow, count(1), string_agg(r.id::text, ', ' order by r.id)
            )
        when count(k.run_id) > 0 then
            format(
                'key "%s" of tenant "%s" and workflow "%s" is kept for run %s and names run %s',
                r.key, r.tenant, r.workflow, max(k.run_id::text), max(r.id::text)
            )
    end as problem
from windlass.runs r
left join windlass.kept_keys k
    on k.tenant = r.tenant and k.workflow = r.workflow and k.key = r.key
    and k.expires_at > r.created_at
where r.key is not null and {scope r.id}
group by r.tenant, r.workflow, r.key
