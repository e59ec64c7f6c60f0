-- The newest revisions of versions of workflows.
--
-- $1 text[]: workflows   $2 int[]: versions
select k.workflow, k.version, d.id, d.revision
from unnest($1::text[], $2::integer[]) as k (workflow, version)
cross join lateral (
    select d.id, d.revision
    from windlass.definitions d
    where d.workflow = k.workflow and d.version = k.version
    order by d.revision desc
    limit 1
) d;
