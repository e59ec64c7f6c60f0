-- Whoever makes the first token does so alone.
select pg_advisory_xact_lock(1464421957, hashtext('windlass.tokens'));
