-- Forgets a signal to a key that has expired and is sent once more.
--
-- $1 text, $2 text: tenant and key, which the caller has locked   $3 uuid: its id
-- $4 timestamptz: the time, by which it cannot be looked up here
delete from windlass.key_signals s
where s.tenant = $1 and s.key = $2 and s.id = $3 and (s.expires_at <= $4) is true;
