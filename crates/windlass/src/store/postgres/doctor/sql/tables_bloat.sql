-- tables.bloat: no table or index of Windlass is bloated
--
-- Estimated from existing statistics: number of rows times average width, against the size of the file.
-- Values that are stored out of line count as inline, so the estimate is high and a finding is certain.
-- Relations that were never analyzed are skipped.
select
    'warning' as severity,
    format(
        '%s windlass.%I takes %s for about %s rows that need about %s',
        x.kind, x.name, pg_size_pretty(x.bytes), x.rows, pg_size_pretty(x.needed)
    ) as problem,
    'rows died faster than vacuum removed them, for example under a long transaction or without '
    'autovacuum, and the space is not returned' as cause,
    case x.kind
        when 'index' then format('reindex index concurrently windlass.%I', x.name)
        else format(
            'vacuum full windlass.%I in a maintenance window (it locks the table), or pg_repack '
            'online', x.name
        )
    end as remedy
from (
    select
        'table' as kind,
        c.relname as name,
        pg_relation_size(c.oid) as bytes,
        r.rows,
        -- A row has a header of 24 bytes and a pointer of 4.
        (r.rows * (28 + coalesce(w.width, 0)) / f.filled)::bigint as needed
    from pg_class c
    join pg_stat_user_tables s on s.relid = c.oid
    cross join lateral (select greatest(c.reltuples, s.n_live_tup)::bigint as rows) r
    cross join lateral (
        select coalesce(max(x.option_value::float8), 100) / 100 as filled
        from pg_options_to_table(c.reloptions) x
        where x.option_name = 'fillfactor'
    ) f
    cross join lateral (
        select sum(p.avg_width * (1 - p.null_frac)) as width
        from pg_stats p
        where p.schemaname = 'windlass' and p.tablename = c.relname
    ) w
    where c.relnamespace = to_regnamespace('windlass') and c.relkind = 'r' and c.reltuples >= 0
    union all
    select
        'index',
        c.relname,
        pg_relation_size(c.oid),
        r.rows,
        -- An entry has a header of 8 bytes and a pointer of 4; pages are filled to 90 %.
        (r.rows * (12 + w.width) / 0.9)::bigint
    from pg_index i
    join pg_class c on c.oid = i.indexrelid
    join pg_class t on t.oid = i.indrelid
    cross join lateral (select greatest(c.reltuples, 0)::bigint as rows) r
    cross join lateral (
        -- What is not a column of the table is taken for an id.
        select sum(coalesce(p.avg_width, 16)) as width
        from pg_attribute a
        left join pg_stats p
            on p.schemaname = 'windlass' and p.tablename = t.relname and p.attname = a.attname
        where a.attrelid = i.indexrelid
    ) w
    where t.relnamespace = to_regnamespace('windlass') and t.relkind = 'r' and c.reltuples >= 0
) x
where x.bytes > {bloat_min} and x.bytes > {bloat_factor} * x.needed
