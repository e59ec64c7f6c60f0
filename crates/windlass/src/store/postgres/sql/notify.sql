-- Tells every process that listens that something may have changed. A transaction of its
-- own: committing a notification waits for all others of the server that commit one.
--
-- $1  what it is about
select pg_notify('windlass', $1);
