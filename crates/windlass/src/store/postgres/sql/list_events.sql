-- The history of a run behind an event, and the claims under way in it.
--
-- An event under way may have a number below those that are committed; whoever reads on
-- behind those would never see it. The caller has waited for all that lock the run, and
-- keeps them out (`hold_run`). Claims write history without that lock: of one under way, or
-- committed since this statement began, the ready task is still seen here, with the number
-- of the claim's transaction on it. Once those have ended, everything up to the last event
-- that is seen here is there. A claim that takes its task later takes its numbers later, too.
--
-- Rows know the lower half of a transaction's number. Those that are alive are less than
-- 2^31 apart, which tells the upper half.
--
-- A row of history has one event or more, and the first may have none behind $2: no more rows
-- are read than may be needed.
--
-- $1 uuid: the run   $2 bigint: the event   $3 bigint: how many
select e.id, e.at, e.kind, e.idx, e.from_state, e.to_state, e.fence, e.attempt, e.detail::text,
    d.name,
    array(
        select distinct (s.next_xid + x.ahead)::text
        from windlass.ready q
        cross join lateral (
            select pg_snapshot_xmax(pg_current_snapshot())::text::bigint as next_xid
        ) s
        cross join lateral (
            select
                (q.xmax::text::bigint - s.next_xid % 4294967296 + 6442450944) % 4294967296
                - 2147483648 as ahead
        ) x
        where q.run_id = $1
            and q.xmax::text <> '0'
            and pg_xact_status((s.next_xid + x.ahead)::text::xid8) <> 'aborted'
    ) as claims
from windlass.events e
join windlass.runs r on r.id = e.run_id
left join lateral (
    select d.name
    from windlass.definition_tasks d
    where d.definition_id = r.definition_id and d.idx = e.idx
    offset 0
) d on true
where e.run_id = $1
    and e.entry >= $2 / 4096
    and e.entry <= (
        select max(h.id)
        from (
            select h.id
            from windlass.history h
            where h.run_id = $1 and h.id >= $2 / 4096
            order by h.id
            limit $3 + 1
        ) h
    )
    and e.id > $2
order by e.id
limit $3;
