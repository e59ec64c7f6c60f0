-- Adds the role `metrics`, of tokens that read the metrics of a server and nothing else.
--
-- A server of the version before does not know the role: it refuses such a token with an error, and
-- cannot list the tokens of a page that has one. Create the first one after the last server of that
-- version has ended.
alter table windlass.tokens
    drop constraint tokens_roles_check,
    add constraint tokens_roles_check check (
        cardinality(roles) between 1 and 5
        and roles <@ array['metrics', 'viewer', 'worker', 'operator', 'admin']
    );
