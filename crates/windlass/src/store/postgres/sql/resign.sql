-- Gives up the duties that a candidate has, and tells the other processes, which this one may
-- not live to do later. Waits for its own sweeps that are under way.
--
-- $1 uuid: the candidate   $2 text[]: the duties; $3, $4, $5 bigint[]: sweeps, tasks moved,
-- errors of each since the last time; $6 timestamptz[], $7 text[]: its last sweep and error
-- $8, $9 bigint[]: how many microseconds the sweeps took since the last time, and the last one
with given_up as (
    update windlass.leaders l
    set is_given_up = true,
        runs = l.runs + t.runs,
        items = l.items + t.items,
        errors = l.errors + t.errors,
        last_run_at = greatest(t.last_run_at, l.last_run_at),
        busy = l.busy + t.busy,
        last_took = coalesce(t.last_took, l.last_took),
        last_error = coalesce(t.last_error, l.last_error)
    from unnest($2, $3, $4, $5, $6, $7, $8, $9)
        t (duty, runs, items, errors, last_run_at, last_error, busy, last_took)
    where l.duty = t.duty and l.holder = $1 and not l.is_given_up
    returning l.duty
)
select g.duty, pg_notify('windlass', 'l') from given_up g;
