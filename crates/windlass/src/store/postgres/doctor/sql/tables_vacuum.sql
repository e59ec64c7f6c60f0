-- tables.vacuum: autovacuum keeps up with the tables of Windlass
--
-- Compares the counters of the server with the thresholds of each table. Autovacuum starts within a
-- minute or two after a threshold is passed; several times as many dead rows mean that it does not run,
-- cannot remove them, or is too slow.
select
    'warning' as severity,
    case
        when t.is_disabled then format('autovacuum is disabled for windlass.%I', t.relname)
        else format(
            'windlass.%I has %s dead and %s live rows; autovacuum starts at %s dead rows',
            t.relname, t.dead, t.live, t.threshold
        )
    end as problem,
    case
        when t.is_disabled then
            'dead rows are never removed, and every scan reads them'
        else format(
            'last autovacuum: %s; it has no free worker, is too slow, or an old transaction keeps '
            'the rows (see server.transactions, server.prepared and server.slots)',
            coalesce(t.last_autovacuum::text, 'never')
        )
    end as cause,
    case
        when t.is_disabled then format('alter table windlass.%I reset (autovacuum_enabled)',
            t.relname)
        else format(
            'vacuum (verbose) windlass.%I, which reports what it could not remove; then raise '
            'autovacuum_max_workers or autovacuum_vacuum_cost_limit', t.relname
        )
    end as remedy
from (
    select
        c.relname,
        s.n_dead_tup as dead,
        s.n_live_tup as live,
        s.last_autovacuum,
        (
            coalesce(o.threshold, current_setting('autovacuum_vacuum_threshold')::float8)
            + coalesce(o.scale, current_setting('autovacuum_vacuum_scale_factor')::float8)
                * greatest(c.reltuples, s.n_live_tup, 0)
        )::bigint as threshold,
        coalesce(o.is_disabled, false) as is_disabled
    from pg_class c
    join pg_stat_user_tables s on s.relid = c.oid
    cross join lateral (
        select
            max(x.option_value::float8) filter (
                where x.option_name = 'autovacuum_vacuum_threshold'
            ) as threshold,
            max(x.option_value::float8) filter (
                where x.option_name = 'autovacuum_vacuum_scale_factor'
            ) as scale,
            bool_or(not x.option_value::boolean) filter (
                where x.option_name = 'autovacuum_enabled'
            ) as is_disabled
        from pg_options_to_table(c.reloptions) x
    ) o
    where c.relnamespace = to_regnamespace('windlass') and c.relkind = 'r'
) t
where t.is_disabled or t.dead > greatest({dead_rows_min}, {dead_rows_factor} * t.threshold)
