-- All quotas: first that of all tenants that have none of their own.
select q.tenant, q.starts_per_second, q.backlog_max, q.payload_bytes_max,
    q.payload_bytes_per_second, q.schedules_max, q.tasks_max
from windlass.quotas q
order by q.tenant collate "C";
