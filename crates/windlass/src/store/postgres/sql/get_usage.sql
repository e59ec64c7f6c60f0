-- How many ready tasks and schedules a tenant has, each up to a limit: what is beyond is not read.
-- The tasks are counted level by level, each in the order of the index by tenants.
--
-- $1 text: the tenant   $2 bigint: the limit
select
    (
        select count(*)
        from (
            select
            from windlass.levels l
            cross join lateral (
                select
                from windlass.ready r
                where r.level_id = l.id
                    and r.tenant_id = (select t.id from windlass.tenants t where t.name = $1)
                limit $2
            ) of_level
            limit $2
        ) of_all
    ) as ready_tasks,
    (
        select count(*)
        from (select from windlass.schedules s where s.tenant = $1 limit $2) of_tenant
    ) as schedules;
