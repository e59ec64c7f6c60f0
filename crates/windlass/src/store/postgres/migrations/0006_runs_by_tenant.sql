-- Lists the runs of one tenant without reading those of others.
--
-- An end of a run must not touch an index (see the fillfactor of `runs`), so no column that changes
-- is in it: a list that also filters by state, workflow or metadata reads the tenant's runs from the
-- newest on.
--
-- Collation and empty bytes keep the planner from taking this index for a lookup by tenant and key,
-- which looks as cheap by it while the table is small, and `runs_by_age` for the order of a tenant's
-- list. A list says `tenant collate "C"`.
--
-- Starts and ends of runs wait while it is built. Where the table is large, build the same index with
-- `create index concurrently` before the migration, which then finds it.
create index if not exists runs_by_tenant
    on windlass.runs (tenant collate "C", created_at, (uuid_send(id) || ''::bytea));
