-- The rules of how long runs are kept.
select r.workflow, r.state, (extract(epoch from r.keep_for) * 1000000)::bigint as keep_micros,
    (extract(epoch from r.keep_key_for) * 1000000)::bigint as keep_key_micros, r.archives,
    r.with_dead_letters
from windlass.retention r
order by r.workflow collate "C", r.state;
