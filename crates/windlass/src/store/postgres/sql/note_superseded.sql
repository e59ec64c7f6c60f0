-- Notes for the next sweep that others have the places of runs in lanes.
--
-- $1 uuid[]: the runs
insert into windlass.staged (run_id, purpose)
select k.run_id, 'superseded' from unnest($1::uuid[]) as k (run_id);
