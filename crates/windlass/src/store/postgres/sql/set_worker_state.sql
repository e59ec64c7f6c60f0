-- Writes how alive a worker is.
--
-- $1 uuid: the worker, which the caller has locked   $2 text: its state
-- $3 timestamptz: when it ended, if it has
update windlass.workers set state = $2, ended_at = $3 where id = $1;
