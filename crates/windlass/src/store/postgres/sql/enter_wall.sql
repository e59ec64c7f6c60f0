-- From here on until the transaction ends, only what is a tenant's can be read. Nothing of it stays
-- in the session.
--
-- $1 text: the tenant   $2 text: the role that is subject to row level security
select set_config('windlass.tenant', $1, true), set_config('role', $2, true);
