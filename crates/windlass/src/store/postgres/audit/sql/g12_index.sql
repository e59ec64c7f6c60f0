-- G12.index: the index that makes idempotency keys unique is there and valid
--
-- Two starts with one key that race are told apart by this index alone. It must be unique,
-- on tenant, workflow and key, for every run that has a key, and PostgreSQL must use it.
select
    case
        when x.indexrelid is null then 'index windlass.runs_key does not exist'
        when not x.indisunique then 'index windlass.runs_key is not unique'
        when not (x.indisvalid and x.indisready and x.indislive) then
            'index windlass.runs_key is not valid'
        when x.columns <> 'tenant, workflow, key' then
            format('index windlass.runs_key is on (%s)', x.columns)
        when x.condition is distinct from '(key IS NOT NULL)' then
            format('index windlass.runs_key is for rows where %s', coalesce(x.condition, 'any'))
    end as problem
from (values (1)) one (row)
left join (
    select
        i.indexrelid, i.indisunique, i.indisvalid, i.indisready, i.indislive,
        pg_get_expr(i.indpred, i.indrelid) as condition,
        (
            select string_agg(a.attname, ', ' order by a.attnum)
            from pg_attribute a
            where a.attrelid = i.indexrelid
        ) as columns
    from pg_index i
    where
        i.indexrelid = to_regclass('windlass.runs_key')
        and i.indrelid = to_regclass('windlass.runs')
) x on true
