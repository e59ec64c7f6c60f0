-- Locks the ready tasks of a run, and waits for claims that are under way on them. After
-- it, a task of the run is either still ready and stays so, or seen as leased.
--
-- $1 uuid: the run, which the caller has locked
select q.idx from windlass.ready q where q.run_id = $1 order by q.idx for update;
