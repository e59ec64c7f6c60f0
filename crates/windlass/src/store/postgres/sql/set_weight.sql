-- Sets a tenant's share.
--
-- $1 text: the tenant   $2 smallint: its weight
insert into windlass.tenants (name, weight)
values ($1, $2)
on conflict (name) do update set weight = excluded.weight;
