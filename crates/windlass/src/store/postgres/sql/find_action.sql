-- What an entry of the operators' log says.
--
-- $1 uuid: the id
select l.action, l.detail::text as detail from windlass.operator_log l where l.id = $1;
