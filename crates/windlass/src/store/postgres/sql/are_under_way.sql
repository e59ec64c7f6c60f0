-- Whether one of some transactions is still under way.
--
-- $1 text[]: their numbers
select exists (
    select from unnest($1) x (number) where pg_xact_status(x.number::xid8) = 'in progress'
);
