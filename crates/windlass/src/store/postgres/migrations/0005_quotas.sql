-- How much tenants may ask of the servers.

create table windlass.quotas (
    -- Empty for all that have none of their own.
    tenant text primary key check (octet_length(tenant) <= 200),
    -- What is null is not limited.
    starts_per_second integer check (starts_per_second between 1 and 1000000000),
    -- Tasks that are ready.
    backlog_max integer check (backlog_max between 1 and 1000000000),
    payload_bytes_max integer check (payload_bytes_max between 1 and 1000000000),
    payload_bytes_per_second integer check (payload_bytes_per_second between 1 and 1000000000),
    schedules_max integer check (schedules_max between 1 and 1000000000),
    tasks_max integer check (tasks_max between 1 and 1000000000)
);
