-- Deletes lanes as they were, by physical place, which cannot turn into a scan of the table.
--
-- $1 int[], $2 int[], $3 text[], $4 bigint[]: the rows, by limit, tenant, key and number
delete from windlass.lanes
where ctid = any(array(
    select p.place
    from unnest($1::integer[], $2::integer[], $3::text[], $4::bigint[])
        as k (limit_id, tenant_id, key, number)
    cross join lateral (
        select l.ctid as place
        from windlass.lanes l
        where l.limit_id = k.limit_id and l.tenant_id = k.tenant_id and l.key = k.key
            and l.number = k.number
        offset 0
    ) p
));
