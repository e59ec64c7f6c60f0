-- Deletes a schedule with its history. No row if there is none.
--
-- $1 text: the tenant   $2 text: the name
delete from windlass.schedules s
where s.tenant = $1 and s.name = $2
returning s.id;
