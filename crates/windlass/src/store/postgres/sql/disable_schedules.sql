-- Disables what a program declared and declares no more. Locks the rows in the order of their numbers.
--
-- $1 text: the owner   $2 text[], $3 text[]: tenants and names of what it declares
with gone as (
    select s.id
    from windlass.schedules s
    where s.owner = $1
        and s.state <> 'disabled'
        and not exists (
            select from unnest($2, $3) d (tenant, name)
            where d.tenant = s.tenant and d.name = s.name
        )
    order by s.id
    for no key update
)
update windlass.schedules s
set state = 'disabled'
from gone g
where s.id = g.id
returning s.tenant, s.name;
