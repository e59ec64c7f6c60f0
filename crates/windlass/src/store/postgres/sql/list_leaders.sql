-- Who leads what.
select l.duty, l.term, l.holder, l.holder_name, l.since, l.renewed_at, l.until, l.rotates_at,
    l.is_given_up, l.runs, l.items, l.errors, l.last_run_at, l.busy, l.last_took,
    l.last_error
from windlass.leaders l
order by l.duty;
