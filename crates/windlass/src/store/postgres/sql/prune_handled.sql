-- Forgets keys of what tasks have handled, whose time is over, and passes over those that someone is
-- at. Answers how many.
--
-- $1 int: how many at most
select windlass.prune_handled($1);
