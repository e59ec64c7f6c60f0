-- Writes a duty of a program that the transaction has locked.
--
-- $1 text: the name   $2 bigint: its interval in microseconds   $3 timestamptz: its next time
-- $4 bigint: the term   $5 uuid, $6 text, $7, $8 timestamptz: who has it, since and until when
-- $9, $10 bigint: runs and errors   $11 timestamptz, $12 bigint: the last run and how long it took
-- in microseconds   $13 text: the last error
update windlass.duties d
set every_micros = $2, next_at = $3, term = $4, holder = $5, holder_name = $6, since = $7,
    until = $8, runs = $9, errors = $10, last_run_at = $11, last_took_micros = $12,
    last_error = $13
where d.name = $1;
