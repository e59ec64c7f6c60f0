-- Signals to runs that functions ask for: the oldest that nobody has taken, in their order and with
-- what they say; the newest of them; and the places of those that functions were told of.
--
-- $1 uuid[], $2 text[]: the runs, which the caller has locked, and the names
-- $3 bigint[]: how many of each   $4 boolean[]: whether the newest is asked for
-- $5 uuid[], $6 uuid[]: those that were told, by run and id
select s.run_id, s.seq, s.id, s.name, s.value::text as value, false as is_newest
from unnest($1::uuid[], $2::text[], $3::bigint[]) as k (run_id, name, most)
cross join lateral (
    select x.run_id, x.seq, x.id, x.name, x.value
    from windlass.signals x
    where x.run_id = k.run_id and x.name = k.name and not x.is_taken
    order by x.seq
    limit k.most
) s
union all
select n.run_id, n.seq, n.id, n.name, null, true
from unnest($1::uuid[], $2::text[], $4::boolean[]) as k (run_id, name, is_asked)
cross join lateral (
    select x.run_id, x.seq, x.id, x.name
    from windlass.signals x
    where k.is_asked and x.run_id = k.run_id and x.name = k.name and not x.is_taken
    order by x.seq desc
    limit 1
) n
union all
select t.run_id, t.seq, t.id, t.name, null, false
from unnest($5::uuid[], $6::uuid[]) as k (run_id, id)
cross join lateral (
    select x.run_id, x.seq, x.id, x.name
    from windlass.signals x
    where x.run_id = k.run_id and x.id = k.id
    offset 0
) t
order by run_id, seq;
