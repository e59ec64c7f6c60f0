-- The signals of runs that nobody has taken, the oldest first.
--
-- $1 uuid[], $2 text[]: the runs, which the caller has locked, and the names
-- $3 bigint[]: how many of each
select s.run_id, s.seq, s.id, s.name, s.value::text as value
from unnest($1::uuid[], $2::text[], $3::bigint[]) as k (run_id, name, most)
cross join lateral (
    select x.run_id, x.seq, x.id, x.name, x.value
    from windlass.signals x
    where x.run_id = k.run_id and x.name = k.name and not x.is_taken
    order by x.seq
    limit k.most
) s
order by s.run_id, s.seq;
