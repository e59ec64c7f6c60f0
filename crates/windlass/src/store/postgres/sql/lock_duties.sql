-- Locks duties of programs, and passes over those that others have: someone else is about to have
-- them.
--
-- $1 text[]: the names
select d.name, d.every_micros, d.next_at, d.term, d.holder, d.holder_name, d.since, d.until,
    d.runs, d.errors, d.last_run_at, d.last_took_micros, d.last_error
from windlass.duties d
where d.name = any($1)
order by d.name
for no key update skip locked;
