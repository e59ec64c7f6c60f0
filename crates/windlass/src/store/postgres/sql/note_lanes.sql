-- Notes for the next sweep that runs may have slots in lanes by now.
--
-- $1 uuid[]: the runs
insert into windlass.staged (run_id, purpose)
select k.run_id, 'lane' from unnest($1::uuid[]) as k (run_id);
