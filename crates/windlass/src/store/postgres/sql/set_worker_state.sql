-- Writes how alive a worker is.
--
-- $1 uuid: the worker, which the caller has locked   $2 text: its state
update windlass.workers set state = $2 where id = $1;
