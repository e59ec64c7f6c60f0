-- The history of a run behind an event.
--
-- Claims write history without the lock of the run, so one under way may have a number
-- below those that are committed; whoever reads on behind those would never see it. Its
-- ready task is still seen here, with the claim's transaction on it: then the page is not to
-- be used, and read again.
--
-- $1 uuid: the run   $2 bigint: the event   $3 bigint: how many
select e.id, e.at, e.kind, e.idx, e.from_state, e.to_state, e.fence, e.attempt, e.detail::text,
    d.name,
    (
        select exists (
            select
            from windlass.ready q
            cross join lateral (
                select pg_snapshot_xmax(pg_current_snapshot())::text::bigint as next_xid
            ) s
            cross join lateral (
                select (s.next_xid >> 32 << 32) + q.xmax::text::bigint as xid
            ) x
            where q.run_id = $1
                and q.xmax::text <> '0'
                and pg_xact_status(
                    (case when x.xid < s.next_xid then x.xid else x.xid - (1::bigint << 32) end)
                    ::text::xid8) <> 'aborted'
        )
    ) as is_claim_under_way
from windlass.events e
join windlass.runs r on r.id = e.run_id
left join windlass.definition_tasks d on d.definition_id = r.definition_id and d.idx = e.idx
where e.run_id = $1 and e.id > $2
order by e.id
limit $3;
