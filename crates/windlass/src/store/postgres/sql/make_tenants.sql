-- Makes tenants known, and numbers them in the order given.
--
-- $1 text[]: names
insert into windlass.tenants (name)
select p.name
from (
    select k.name, min(k.n) as n
    from unnest($1::text[]) with ordinality as k (name, n)
    where not exists (select from windlass.tenants t where t.name = k.name)
    group by k.name
    order by min(k.n)
) p
on conflict do nothing;
