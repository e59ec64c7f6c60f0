-- Ends leases with these fences, and says what they were. A lease with another fence, or of
-- a task that is not leased, is left out.
--
-- It is sent with the beginning of the transaction, and ends nothing if there is none. It
-- deletes by physical place, which cannot turn into a scan of the table.
--
-- $1 uuid[], $2 int[]: the tasks, whose runs the caller has locked   $3 bigint[]: the fences
delete from windlass.leases l
where l.ctid = any(array(
    select p.place
    from unnest($1::uuid[], $2::integer[], $3::bigint[]) as k (run_id, idx, fence)
    cross join lateral (
        select x.ctid as place
        from windlass.leases x
        where x.run_id = k.run_id and x.idx = k.idx and x.fence = k.fence
        offset 0
    ) p
    where current_setting('transaction_deferrable') = 'on'
))
returning l.run_id, l.idx, l.worker_id, l.claim_seq, l.route_id, l.tag, l.seq, l.fence,
    l.attempt, l.answered_fence, l.answered_verb, l.has_checkpoint;
