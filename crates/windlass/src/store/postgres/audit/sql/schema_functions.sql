-- schema.functions: every function of the schema is there, as its migration made it
--
-- Starts from SQL are these functions, with the rights of whoever owns the schema. One that
-- was replaced may write other rows than the engine expects, and one without its settings
-- calls what lies in its caller's search path. Bodies are compared by their hashes.
select
    case
        when p.oid is null then format('function %s does not exist', x.signature)
        when p.traits <> x.traits then
            format('function %s is %s, not %s', x.signature, p.traits, x.traits)
        when p.hash <> x.hash then format('function %s has another body', x.signature)
    end as problem
from (
    values
        {functions}
) x (signature, traits, hash)
left join (
    select
        p.oid,
        concat_ws(
            ' ',
            l.lanname,
            case p.provolatile when 'i' then 'immutable' when 's' then 'stable' else 'volatile' end,
            case when p.proisstrict then 'strict' end,
            case when p.proparallel = 's' then 'parallel safe' end,
            case when p.prosecdef then 'security definer' end,
            'set ' || array_to_string(p.proconfig, '; ')
        ) as traits,
        encode(sha256(convert_to(replace(p.prosrc, chr(13), ''), 'UTF8')), 'hex') as hash
    from pg_proc p
    join pg_language l on l.oid = p.prolang
    where p.pronamespace = to_regnamespace('windlass')
) p on p.oid = to_regprocedure(x.signature)
