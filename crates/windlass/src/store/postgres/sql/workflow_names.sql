-- The versions of workflows that are registered.
--
-- $1 bigint: how many
select d.workflow, d.version
from windlass.definitions d
group by d.workflow, d.version
order by d.workflow collate "C", d.version
limit $1;
