-- Forgets that runs wait for their admission.
--
-- $1 bigint[]: their numbers
delete from windlass.staged s where s.seq = any($1);
