-- Gives up the duties that a candidate has, and tells the other processes, which this one may
-- not live to do later. Waits for its own sweeps that are under way.
--
-- $1 uuid: the candidate   $2 text[]: the duties; $3, $4, $5 bigint[]: sweeps, tasks moved,
-- errors of each since the last time; $6 timestamptz[], $7 text[]: its last sweep and error
with given_up as (
    update windlass.leaders l
    set is_given_up = true,
        runs = l.runs + t.runs,
        items = l.items + t.items,
        errors = l.errors + t.errors,
        last_run_at = coalesce(t.last_run_at, l.last_run_at),
        last_error = coalesce(t.last_error, l.last_error)
    from unnest($2, $3, $4, $5, $6, $7) t (duty, runs, items, errors, last_run_at, last_error)
    where l.duty = t.duty and l.holder = $1 and not l.is_given_up
    returning l.duty
)
select g.duty, pg_notify('windlass', 'l') from given_up g;
