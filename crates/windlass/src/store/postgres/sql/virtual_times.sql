-- The virtual times of levels: the largest tags that were claimed of them.
--
-- $1 int[]: levels
select k.level_id, m.tag
from unnest($1::integer[]) as k (level_id)
cross join lateral (
    select m.tag
    from windlass.marks m
    where m.level_id = k.level_id
    order by m.tag desc
    limit 1
) m;
