-- Which of some tasks wait in lanes.
--
-- $1 uuid[], $2 int[]: the tasks, of runs that the caller has locked
select k.run_id, k.idx
from unnest($1::uuid[], $2::integer[]) as k (run_id, idx)
where exists (
    select
    from windlass.lane_places p
    where p.run_id = k.run_id and p.idx = k.idx and (
        p.superseded = 'waiting' or p.seq > (
            select a.served
            from windlass.lanes a
            where a.limit_id = p.limit_id and a.tenant_id = p.tenant_id and a.key = p.key
            order by a.number desc
            limit 1
        )
    )
);
