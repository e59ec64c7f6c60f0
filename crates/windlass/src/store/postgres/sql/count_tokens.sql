-- How many tokens there are but for this one.
--
-- $1 text: the id
select count(*) from windlass.tokens t where t.id <> $1;
