-- Lets one transaction at a time register definitions of a workflow. Workflows whose names
-- have the same hash wait for each other for no need.
--
-- $1 text[]: the workflows' names
select pg_advisory_xact_lock(1464421957, k.hash)
from (select distinct hashtext(n) as hash from unnest($1::text[]) as n order by 1) k;
