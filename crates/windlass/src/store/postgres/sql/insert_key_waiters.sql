-- Notes who waits for signals to keys.
--
-- $1 uuid[], $2 int[], $3 int[]: tasks, whose runs the caller has locked, and their calls
-- $4 text[], $5 text[], $6 text[]: tenants, keys and names, which the caller has locked
insert into windlass.key_waiters (run_id, idx, call, tenant, key, name)
select w.run_id, w.idx, w.call, w.tenant, w.key, w.name
from unnest($1::uuid[], $2::integer[], $3::integer[], $4::text[], $5::text[], $6::text[])
    as w (run_id, idx, call, tenant, key, name)
order by w.run_id, w.idx, w.call;
