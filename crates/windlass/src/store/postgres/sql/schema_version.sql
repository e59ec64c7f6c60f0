-- The newest migration that was applied, or 0, and the oldest version whose programs all those
-- that were applied let work on, or 0. Takes no locks that matter.
select coalesce(max(m.version), 0) as version, coalesce(max(m.works_from), 0) as works_from
from windlass.migrations m;
