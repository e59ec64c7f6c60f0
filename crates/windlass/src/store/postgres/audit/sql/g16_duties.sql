-- G16.duties: a duty of a program is begun when it is due, and ends once per term
--
-- A term that began before its duty was due, or more ends than terms, means that two processes were
-- at one duty. A next time that is not behind the last run serves again what was served.
select
    case
        when d.until is not null and d.since < d.next_at then
            format('term %s of duty %s began %s, it is due %s', d.term, d.name, d.since, d.next_at)
        when d.until < d.since then
            format('term %s of duty %s began %s, ends %s', d.term, d.name, d.since, d.until)
        when d.runs > d.term then
            format('duty %s was begun %s times and ended %s times', d.name, d.term, d.runs)
        when d.next_at <= d.last_run_at then
            format('duty %s is due %s, it was begun last %s', d.name, d.next_at, d.last_run_at)
        when (d.errors = 0) <> (d.last_error is null) then
            format('duty %s has %s errors, the last one: %s', d.name, d.errors, d.last_error)
    end as problem
from windlass.duties d
