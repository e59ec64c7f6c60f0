-- G16.leaders: every duty has a row, and its times fit together
--
-- A duty without a row is done by nobody, for ever. A term that began after it was last
-- renewed, or that is over before, was not written by the engine, and lets two processes
-- believe that they lead.
select
    case
        when l.duty is null then format('the duty %s has no row', d.duty)
        when l.since > l.renewed_at then
            format('term %s of %s began %s, was renewed %s', l.term, l.duty, l.since, l.renewed_at)
        when l.until < l.renewed_at then
            format('term %s of %s was renewed %s, ends %s', l.term, l.duty, l.renewed_at, l.until)
        when l.rotates_at < l.since then
            format('term %s of %s began %s, rotates %s', l.term, l.duty, l.since, l.rotates_at)
        when l.is_given_up and l.term = 0 then
            format('the duty %s was given up by nobody', l.duty)
    end as problem
from (
    values ('promote_due'), ('reap'), ('prune'), ('schedules'), ('rollup'), ('audit')
) d (duty)
left join windlass.leaders l on l.duty = d.duty
