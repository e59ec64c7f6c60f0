-- Notes the keys that runs have in lanes.
--
-- $1 uuid[]: the runs, which the caller has locked   $2 text[]: the keys
update windlass.runs r
set lane_keys = k.lane_keys::json
from unnest($1::uuid[], $2::text[]) as k (id, lane_keys)
where r.id = k.id;
