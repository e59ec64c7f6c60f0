-- Which of some runs have a place in a lane that others have taken.
--
-- $1 uuid[]: the runs, which the caller has locked
select distinct p.run_id
from windlass.lane_places p
where p.run_id = any($1) and p.superseded is not null;
