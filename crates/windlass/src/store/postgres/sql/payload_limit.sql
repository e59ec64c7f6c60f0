-- How large a payload may be, in bytes.
select s.payload_limit from windlass.settings s where s.is_only;
