-- Sets a tenant's share.
--
-- $1 text: the tenant   $2 smallint: its weight
with changed as (
    update windlass.tenants set weight = $2 where name = $1 returning id
)
insert into windlass.tenants (name, weight)
select $1, $2 where not exists (select from changed)
on conflict (name) do update set weight = excluded.weight;
