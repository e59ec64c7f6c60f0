-- Sets a quota; no row if there are too many.
--
-- $1 text: the tenant, empty for all that have none   $2 int to $7 int: the limits, null for none
-- $8 bigint: the most quotas
insert into windlass.quotas (
    tenant, starts_per_second, backlog_max, payload_bytes_max, payload_bytes_per_second,
    schedules_max, tasks_max
)
select $1, $2, $3, $4, $5, $6, $7
where (select count(*) from windlass.quotas q) < $8
    or exists (select from windlass.quotas q where q.tenant = $1)
on conflict (tenant) do update
set starts_per_second = excluded.starts_per_second, backlog_max = excluded.backlog_max,
    payload_bytes_max = excluded.payload_bytes_max,
    payload_bytes_per_second = excluded.payload_bytes_per_second,
    schedules_max = excluded.schedules_max, tasks_max = excluded.tasks_max
returning tenant;
