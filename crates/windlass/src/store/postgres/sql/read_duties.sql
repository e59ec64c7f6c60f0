-- The duties of these names, and the time. Locks nothing: most processes that ask for a duty are
-- only told when to ask again.
--
-- $1 text[]: the names
select d.name, d.every_micros, d.next_at, d.term, d.holder, d.holder_name, d.since, d.until,
    d.runs, d.errors, d.last_run_at, d.last_took_micros, d.last_error,
    clock_timestamp() as at
from windlass.duties d
where d.name = any($1)
order by d.name;
