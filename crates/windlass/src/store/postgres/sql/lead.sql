-- The rest of what a candidate says, behind `outlook.sql`, whose parameters are $1 to $3.
--
-- Locks the rows of the duties that the candidate has or may have, and passes over those
-- that others have: a sweep, or another candidate. Renews the terms that it has and begins
-- the next of the others.
--
-- $4 uuid: the candidate   $5 text: its name   $6 bigint: its time to live in microseconds
-- $7 text[]: the duties; $8, $9, $10 bigint[]: sweeps, tasks moved, errors of each since the
-- last time; $11 timestamptz[], $12 text[]: its last sweep and last error
-- $13 text[]: the duties whose lock the candidate has, null if the times in the rows decide
-- $14 text[]: those of them whose lock it had not the last time
-- $15 bigint: after how many microseconds of a term others may have it, null if never
-- $16, $17 bigint[]: how many microseconds the sweeps took since the last time, and the last one
may as (
    select l.duty,
        l.holder is not distinct from $4 and not l.is_given_up and l.duty <> all($14) as is_held
    from windlass.leaders l
    where case
            -- Whoever leads and lets others have the lock goes on until one does.
            when $13::text[] is not null then
                l.duty = any($13) or l.holder = $4 and not l.is_given_up
            else l.holder is null
                or l.holder = $4
                or l.is_given_up
                or least(l.until, l.rotates_at) <= (select k.at from look k)
        end
    order by l.duty
    for no key update skip locked
),
led as (
    update windlass.leaders l
    set term = case when m.is_held then l.term else l.term + 1 end,
        holder = $4,
        holder_name = $5,
        since = case when m.is_held then l.since else k.at end,
        renewed_at = k.at,
        until = k.at + $6 * interval '1 microsecond',
        rotates_at = case when m.is_held then l.since else k.at end
            + $15::bigint * interval '1 microsecond',
        is_given_up = false,
        runs = l.runs + t.runs,
        items = l.items + t.items,
        errors = l.errors + t.errors,
        last_run_at = greatest(t.last_run_at, l.last_run_at),
        busy = l.busy + t.busy,
        last_took = coalesce(t.last_took, l.last_took),
        last_error = coalesce(t.last_error, l.last_error)
    from may m
    join unnest($7, $8, $9, $10, $11, $12, $16, $17)
        t (duty, runs, items, errors, last_run_at, last_error, busy, last_took)
        on t.duty = m.duty
    cross join look k
    where l.duty = m.duty
    returning l.duty, l.term, l.holder, l.holder_name, l.since, l.renewed_at, l.until,
        l.rotates_at, l.is_given_up, l.runs, l.items, l.errors, l.last_run_at, l.busy, l.last_took,
        l.last_error
)
select k.at, k.promote_at, k.reap_at, k.fire_at, k.may_prepare, l.*
from look k
cross join (
    select d.duty, d.term, d.holder, d.holder_name, d.since, d.renewed_at, d.until,
        d.rotates_at, d.is_given_up, d.runs, d.items, d.errors, d.last_run_at, d.busy,
        d.last_took, d.last_error
    from led d
    union all
    select o.duty, o.term, o.holder, o.holder_name, o.since, o.renewed_at, o.until,
        o.rotates_at, o.is_given_up, o.runs, o.items, o.errors, o.last_run_at, o.busy,
        o.last_took, o.last_error
    from windlass.leaders o
    where not exists (select 1 from led d where d.duty = o.duty)
) l
order by l.duty;
