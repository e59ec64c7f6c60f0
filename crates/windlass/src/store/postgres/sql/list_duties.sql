-- All duties of programs.
select d.name, d.every_micros, d.next_at, d.term, d.holder, d.holder_name, d.since, d.until,
    d.runs, d.errors, d.last_run_at, d.last_took_micros, d.last_error
from windlass.duties d
order by d.name;
