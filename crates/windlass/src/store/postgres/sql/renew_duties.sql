-- Renews the leases of terms that are not over, and waits for whoever has the rows.
--
-- $1 text[]: the names   $2 uuid[], $3 bigint[]: candidate and term of each
-- $4 timestamptz: the time of a test, null for the clock's
-- $5 bigint: the time to live in microseconds
update windlass.duties d
set until = coalesce($4, clock_timestamp()) + $5 * interval '1 microsecond'
from unnest($1, $2, $3) t (name, candidate, term)
where d.name = t.name and d.holder = t.candidate and d.term = t.term and d.until is not null
returning d.name;
