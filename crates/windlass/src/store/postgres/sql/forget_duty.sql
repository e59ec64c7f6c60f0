-- Forgets a duty of a program that the transaction has locked.
--
-- $1 text: the name
delete from windlass.duties d
where d.name = $1;
