-- The newest revisions of versions of workflows: by name, and the newest version of each first.
--
-- $1 text: only those of this workflow, null for all   $2 text, $3 int: where the previous page
-- ended, null for the first   $4 bigint: how many
select distinct on (d.workflow collate "C", d.version) d.id, d.registered_at
from windlass.definitions d
where ($1::text is null or d.workflow = $1)
    and (
        $2::text is null
        or d.workflow collate "C" > $2
        or (d.workflow = $2 and d.version < $3)
    )
order by d.workflow collate "C", d.version desc, d.revision desc
limit $4;
