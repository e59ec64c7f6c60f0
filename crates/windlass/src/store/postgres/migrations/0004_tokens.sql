-- Tokens for those who use a server, and a log that says who did what by which token and from where.
--
-- Programs of the version before know nothing of tokens, write entries without the new columns, and
-- cannot list entries of the new actions.

create table windlass.tokens (
    id text primary key check (id ~ '^[a-z2-7]{16}$'),
    -- What the secret is checked against; the secret is kept by nobody but its owner.
    tag bytea not null check (octet_length(tag) = 32),
    name text not null check (octet_length(name) between 1 and 200),
    roles text[] not null check (
        cardinality(roles) between 1 and 4
        and roles <@ array['viewer', 'worker', 'operator', 'admin']
    ),
    -- Whose things it is for; null for those of all tenants.
    tenant text check (octet_length(tenant) between 1 and 200),
    created_at timestamptz not null,
    expires_at timestamptz,
    -- To a minute or so.
    last_used_at timestamptz,
    revoked_at timestamptz
);

create index tokens_by_age on windlass.tokens (created_at, id);

alter table windlass.operator_log
    -- The id of the token that a server was shown; the token itself may be gone.
    add column token text check (octet_length(token) = 16),
    -- The address that a request came from, or `unix`; null if it came through no server.
    add column origin text check (octet_length(origin) between 1 and 200);

-- What is done has more words than it had. Programs know which; here it is a word.
alter table windlass.operator_log
    drop constraint operator_log_action_check,
    add constraint operator_log_action_check check (action ~ '^[a-z_]{1,40}$');

-- The log only grows: an entry is changed by the transaction that writes it, or by nobody.
create function windlass.keep_log()
returns trigger language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    if tg_op = 'UPDATE' and old.xmin = pg_current_xact_id()::xid then
        return new;
    end if;
    raise exception 'the log of what was changed only grows' using errcode = '42501';
end
$$;

revoke execute on function windlass.keep_log() from public;

create trigger operator_log_only_grows before update or delete on windlass.operator_log
    for each row execute function windlass.keep_log();

create trigger operator_log_is_not_emptied before truncate on windlass.operator_log
    for each statement execute function windlass.keep_log();
