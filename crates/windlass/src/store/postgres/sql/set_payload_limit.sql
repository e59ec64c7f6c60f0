-- Sets how large a payload may be. Writes nothing if it is set so.
--
-- $1 int: the limit in bytes
insert into windlass.settings (payload_limit) values ($1)
on conflict (is_only) do update set payload_limit = excluded.payload_limit
where settings.payload_limit <> excluded.payload_limit;
