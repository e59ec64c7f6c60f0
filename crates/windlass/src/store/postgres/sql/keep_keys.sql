-- Keeps the idempotency keys of runs that are about to go.
--
-- $1 uuid[]: the runs, which the caller has locked   $2 timestamptz[]: until when
insert into windlass.kept_keys (tenant, workflow, key, run_id, expires_at, input)
select r.tenant, r.workflow, r.key, r.id, k.expires_at, r.input
from unnest($1::uuid[], $2::timestamptz[]) as k (id, expires_at)
join windlass.runs r on r.id = k.id
where r.key is not null
on conflict (tenant, workflow, key) do update
set run_id = excluded.run_id, expires_at = excluded.expires_at, input = excluded.input;
