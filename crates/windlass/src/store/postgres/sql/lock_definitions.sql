-- Lets one transaction at a time register definitions of a workflow.
--
-- $1 int[]: hashes of the workflows' names, sorted
select pg_advisory_xact_lock(1464421957, n) from unnest($1::integer[]) as n;
