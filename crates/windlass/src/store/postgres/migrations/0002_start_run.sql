-- Starts inside the caller's own transaction, from SQL and from any driver.
--
--     select windlass.start_run('order', '{"id": 9182}', tenant => 'acme', key => 'order-9182');
--     select run_id from windlass.start_runs('[{"workflow": "order", "input": {"id": 1}}]');
--
-- A start writes the run, its input, its tasks (all of them pending), its first event and a
-- row in `staged`. The engine takes it from there once the caller has committed: it moves
-- the first tasks into the queues. A start touches no row that two starts share (no tenant,
-- route or level), so an open transaction of a user keeps nobody waiting but those who start
-- with the same key or id, who must wait to know whether it exists. It sends no NOTIFY: with
-- one, commits queue up behind each other (docs/transactional-starts.md has the figures).
--
-- Locks: rows of `runs` are inserted in the order of their keys, as the engine's own starts do
-- it, so that two batches with common keys wait for each other in one direction only.
--
-- Errors have the codes of docs/errors/ as their SQLSTATE: WL002 for an argument out of its
-- limits, WL003 for a payload, WL004 for an unknown workflow, WL005 for a key or an id that
-- was used for another start. 40001 asks to repeat the transaction, as everywhere.
--
-- Only `start_run` and the two forms of `start_runs` are for others to call. All that is below
-- them is called with the rights of the owner and the search path that those three set; what
-- is in SQL becomes part of their statements. The auditor compares the text of each with what
-- this file says.

-- Fails with a code such as WL-0004, which is shown, and its short form, which is the SQLSTATE.
create function windlass.refuse(kind integer, problem text, hint text default null)
returns void language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    raise exception using
        errcode = format('WL%s', lpad(kind::text, 3, '0')),
        message = format('%s [WL-%s]', problem, lpad(kind::text, 4, '0')),
        hint = coalesce(
            hint, format('docs/errors/WL-%s.md says what to do.', lpad(kind::text, 4, '0'))
        );
end
$$;

-- A version 7 UUID: ids made later sort later. The version of a random UUID is 0100 in the
-- upper half of its seventh byte, so two bits make it 0111.
create function windlass.new_run_id()
returns uuid language sql volatile
as $$
select encode(
    set_bit(
        set_bit(
            overlay(
                uuid_send(gen_random_uuid())
                placing substring(
                    int8send(floor(extract(epoch from clock_timestamp()) * 1000)::bigint) from 3
                )
                from 1 for 6
            ),
            52, 1
        ),
        53, 1
    ),
    'hex'
)::uuid
$$;

-- What is wrong with a name, null if nothing is: the same limits and words as in
-- `windlass_core::name`. A control character is one of Unicode's category Cc.
create function windlass.name_problem(what text, name text, bytes_max integer)
returns text language sql stable parallel safe
as $$
select case
    when name is null then format('%s is null', what)
    when name = '' then format('%s is empty', what)
    when octet_length(name) > bytes_max then format(
        '%s %s… has %s bytes, the limit is %s',
        what, to_json(left(name, 24)), octet_length(name), bytes_max
    )
    when name ~ E'[\\x01-\\x1f\\x7f-\\x9f]' then format(
        '%s %s has a control character at byte %s',
        what, to_json(name), octet_length(substring(name from E'^[^\\x01-\\x1f\\x7f-\\x9f]*'))
    )
end
$$;

-- A JSON text without its strings. Once the escapes of backslashes and quotes are gone, every
-- second quote ends a string. The parts come from one function and are taken in its order: to
-- sort them would take as long as everything else.
create function windlass.without_strings(document text)
returns text language sql immutable strict parallel safe
as $$
select case
    when strpos(document, '"') = 0 then document
    else (
        select string_agg(p.part, '')
        from string_to_table(replace(replace(document, E'\\\\', ''), E'\\"', ''), '"')
            with ordinality as p (part, place)
        where p.place % 2 = 1
    )
end
$$;

-- How deep the brackets of a JSON text are nested, up to one more than the limit. Every turn
-- takes one level of brackets away from what is left without all that is not a bracket.
create function windlass.json_depth(document text)
returns integer language plpgsql immutable strict parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
    brackets text := translate(
        windlass.without_strings(document),
        '{[}],: 0123456789.+-eEtrufalsn' || chr(9) || chr(10) || chr(13),
        '[[]]'
    );
    depth integer := 0;
begin
    while brackets <> '' and depth <= 120 loop
        brackets := replace(brackets, '[]', '');
        depth := depth + 1;
    end loop;
    return depth;
end
$$;

-- Whether an escape in a JSON text stands for half of a character, as the first of the two in
-- "\ud83d\ude00" does without the other.
create function windlass.has_half_character(document text)
returns boolean language sql immutable strict parallel safe
as $$
select regexp_replace(
    replace(document, E'\\\\', ''),
    E'\\\\u[dD][89abAB][0-9a-fA-F]{2}\\\\u[dD][c-fC-F][0-9a-fA-F]{2}', '', 'g'
) ~ E'\\\\u[dD][89a-fA-F]'
$$;

-- The first number of a JSON text that is beyond 1.7976931348623157e308, the largest that most
-- programs can read. `digits` begin with the first that is not 0, `places` are how many
-- of them are before the point once the exponent has moved it.
create function windlass.large_number(document text)
returns text language sql immutable strict parallel safe
as $$
with document as materialized (
    select windlass.without_strings(document) as rest
)
select case when length(n.number) > 24 then left(n.number, 24) || '…' else n.number end
from document d
cross join lateral (
    select
        m.place,
        m.parts[1] as number,
        ltrim(m.parts[2] || coalesce(m.parts[3], ''), '0') as digits,
        coalesce(m.parts[4], '0')::numeric + length(ltrim(
            m.parts[2] || coalesce(m.parts[3], ''), '0'
        )) - length(coalesce(m.parts[3], '')) as places
    from regexp_matches(
        d.rest, '(-?([0-9]+)(?:[.]([0-9]+))?(?:[eE]([-+]?[0-9]+))?)', 'g'
    ) with ordinality as m (parts, place)
) n
where d.rest ~ '[eE][+]?[0-9]{3}|[0-9]{210}'
    and n.digits <> ''
    and (
        n.places > 309
        or n.places = 309 and rpad(n.digits, 17, '0') collate "C" > '17976931348623157'
    )
order by n.place
limit 1
$$;

-- What is wrong with an input. First comes what is cheap and settles nearly all: a text with
-- few bytes or few opening brackets cannot be nested deep; one without an exponent of three
-- digits and without 210 digits in a row has no number that is too large. (To look for so many
-- digits takes five times as long as to look for the first 30 of them.)
create function windlass.input_problem(workflow text, input json, bytes_max integer)
returns text language sql stable parallel safe
as $$
select case
    when input is null then format(
        'input of workflow %s is null, write ''null'' for the JSON value', to_json(workflow)
    )
    when octet_length(input::text) > bytes_max then format(
        'input of workflow %s has %s bytes, the payload_limit is %s',
        to_json(workflow), octet_length(input::text), bytes_max
    )
    when octet_length(input::text) > 240
        and octet_length(input::text) - octet_length(translate(input::text, '[{', '')) > 120
        and windlass.json_depth(input::text) > 120
        then format(
            'input of workflow %s is nested more than 120 deep, which is the limit',
            to_json(workflow)
        )
    when strpos(input::text, E'\\u') > 0 and windlass.has_half_character(input::text)
        then format(
            E'input of workflow %s has an escape from \\ud800 to \\udfff without its other half',
            to_json(workflow)
        )
    when (
            input::text ~ '[eE][+]?[0-9]{3}'
            or octet_length(input::text) >= 210 and input::text ~ '[0-9]{30}'
        )
        and windlass.large_number(input::text) is not null
        then format(
            'input of workflow %s has the number %s, the largest is 1.7976931348623157e308',
            to_json(workflow), windlass.large_number(input::text)
        )
end
$$;

-- What is wrong with the trace context in the metadata of a run: the same words as in
-- `windlass_core::trace`, and places from 0 as there.
create function windlass.trace_problem(traceparent text, tracestate text)
returns text language plpgsql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
    shown constant text := 'traceparent ' || to_json(left(traceparent, 64));
    place integer;
begin
    if traceparent is not null then
        if octet_length(traceparent) <> 55 then
            return format('%s has %s bytes, not 55', shown, octet_length(traceparent));
        end if;
        select p.place
        into place
        from generate_series(0, 54) as p (place)
        where substr(traceparent, p.place + 1, 1)
            !~ case when p.place in (2, 35, 52) then '-' else '[0-9a-f]' end
        order by p.place
        limit 1;
        if found then
            return format(
                '%s has %s at byte %s, not %s', shown, to_json(substr(traceparent, place + 1, 1)), place,
                case when place in (2, 35, 52) then 'a dash' else 'a digit of 0-9a-f' end
            );
        end if;
        if left(traceparent, 2) = 'ff' then
            return format('%s has the version ff at byte 0, which is none', shown);
        end if;
        if substr(traceparent, 4, 32) = repeat('0', 32) then
            return format('%s has a trace id of zeros at byte 3', shown);
        end if;
        if substr(traceparent, 37, 16) = repeat('0', 16) then
            return format('%s has a parent id of zeros at byte 36', shown);
        end if;
    end if;
    if octet_length(tracestate) > 512 then
        return format('tracestate has %s bytes, the limit is 512', octet_length(tracestate));
    end if;
    if tracestate ~ '[^ -~]' then
        return format(
            'tracestate has %s at byte %s, not a printable character of ASCII',
            to_json(substring(tracestate from '[^ -~]')),
            octet_length(substring(tracestate from '^[ -~]*'))
        );
    end if;
    return null;
end
$$;

-- What is wrong with the metadata of a run.
create function windlass.metadata_problem(metadata jsonb)
returns text language plpgsql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
    pairs bigint;
    problem text;
begin
    if jsonb_typeof(metadata) <> 'object' then
        return format('metadata is of the type %s, not an object', jsonb_typeof(metadata));
    end if;
    select
        count(*) over (),
        case
            when octet_length(m.key) > 1024 then format(
                'metadata %s has %s bytes, the limit is 1024',
                to_json(left(m.key, 24)), octet_length(m.key)
            )
            when jsonb_typeof(m.value) <> 'string' then format(
                'metadata %s is of the type %s, not a string',
                to_json(m.key), jsonb_typeof(m.value)
            )
            when octet_length(m.value #>> '{}') > 1024 then format(
                'metadata %s has %s bytes, the limit is 1024',
                to_json(left(m.key, 24)), octet_length(m.value #>> '{}')
            )
        end as what
    into pairs, problem
    from jsonb_each(metadata) as m (key, value)
    order by what, m.key
    limit 1;
    if pairs > 64 then
        return format('metadata has %s pairs, the limit is 64', pairs);
    end if;
    if problem is null and metadata ?| array['traceparent', 'tracestate'] then
        return windlass.trace_problem(metadata ->> 'traceparent', metadata ->> 'tracestate');
    end if;
    return problem;
end
$$;

-- What is wrong with a start besides its input. A delay may be a hundred years at most, as
-- every wait.
create function windlass.start_problem(
    workflow text, tenant text, key text, delay interval, priority integer, metadata jsonb
)
returns text language sql stable parallel safe
as $$
select coalesce(
    windlass.name_problem('workflow name', workflow, 200),
    windlass.name_problem('tenant name', tenant, 200),
    case when key is not null then windlass.name_problem('idempotency key', key, 400) end,
    case
        when delay is null then format('delay of workflow %s is null', to_json(workflow))
        when delay < interval '0' then
            format('delay %s of workflow %s is negative', delay, to_json(workflow))
        when delay > interval '36500 days' then format(
            'delay %s of workflow %s is over the limit of 36500 days', delay, to_json(workflow)
        )
        when priority is null then format('priority of workflow %s is null', to_json(workflow))
        when priority not between -100 and 100 then
            format('priority %s is not within -100 to 100', priority)
        when metadata is not null then windlass.metadata_problem(metadata)
    end
)
$$;

-- Which start of a batch a refusal is about; nothing is said of a start that is alone.
create function windlass.which(place bigint, batch integer)
returns text language sql immutable parallel safe
as $$
select case batch when 1 then '' else format('start %s of %s: ', place, batch) end
$$;

-- Fails with what is wrong with a start that was found to be wrong.
create function windlass.refuse_start(
    which text, workflow text, version integer, tenant text, input json, bytes_max integer,
    key text, delay interval, priority integer, metadata jsonb
)
returns void language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    argument constant text :=
        windlass.start_problem(workflow, tenant, key, delay, priority, metadata);
    payload constant text := windlass.input_problem(workflow, input, bytes_max);
begin
    if argument is not null then
        perform windlass.refuse(2, which || argument);
    elsif payload is not null then
        perform windlass.refuse(
            3,
            which || payload,
            case when octet_length(input::text) > bytes_max then
                'update windlass.settings set payload_limit = … allows up to 67108864 bytes;'
                    ' what is larger belongs elsewhere, and its id here.'
            end
        );
    else
        perform windlass.refuse(
            4,
            format(
                '%sworkflow %s does not exist',
                which, to_json(workflow)::text || coalesce(' version ' || version, '')
            ),
            'A worker or a client that has it makes it known; a transaction that sees an'
                ' older state of the database does not see it before it is begun again.'
        );
    end if;
end
$$;

-- What became of each start of a batch when not all of them made a run: the runs that were
-- there answer for the others, if they were started the same way.
--
-- `made` are the ids of the runs that the batch has just made. Of starts with one id, the one
-- that made the run need not be the first: an earlier one may have a key that was in use.
--
-- A transaction that sees an older state of the database, without the run that was in its way,
-- has been refused by PostgreSQL before. Otherwise a run that is not to be found was removed
-- in between.
create function windlass.match_starts(
    ids uuid[], workflows text[], tenants text[], inputs json[], keys text[], made uuid[]
)
returns table (place integer, run_id uuid, is_new boolean)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
-- The lengths of the arrays decide how they are joined; tables are looked up by index,
-- whatever the caller's session prefers.
set plan_cache_mode = force_custom_plan
set enable_seqscan = off
set enable_indexscan = on
set enable_nestloop = on
set jit = off
as $$
declare
    answer record;
begin
    for answer in
        with batch as materialized (
            select
                n.*,
                m.id is not null and row_number() over (
                    partition by n.id, n.tenant, n.workflow, n.key order by n.place
                ) = 1 as is_new
            from unnest(ids, workflows, tenants, inputs, keys) with ordinality
                as n (id, workflow, tenant, input, key, place)
            left join (
                select r.id, r.tenant, r.workflow, r.key
                from windlass.runs r
                where r.id = any (made)
            ) m on m.id = n.id and m.tenant = n.tenant and m.workflow = n.workflow
                and m.key is not distinct from n.key
        )
        select
            n.place,
            n.id,
            n.key,
            n.is_new,
            r.id as found,
            b.place as maker,
            r.is_named,
            r.tenant is not distinct from n.tenant
                and r.workflow is not distinct from n.workflow
                and r.key is not distinct from n.key
                and r.input::text is not distinct from n.input::text as is_same
        from batch n
        left join lateral (
            select r.id, r.tenant, r.workflow, r.key, r.input, true as is_named
            from windlass.runs r
            where r.id = n.id
            union all
            select r.id, r.tenant, r.workflow, r.key, r.input, false
            from windlass.runs r
            where r.tenant = n.tenant and r.workflow = n.workflow and r.key = n.key
            union all
            select g.run_id, g.tenant, g.workflow, g.key, g.input, false
            from (
                select k.run_id, k.tenant, k.workflow, k.key, k.input, k.expires_at
                from windlass.kept_keys k
                where k.tenant = n.tenant and k.workflow = n.workflow and k.key = n.key
                offset 0
            ) g
            where g.expires_at > clock_timestamp()
            order by is_named desc
            limit 1
        ) r on not n.is_new
        left join batch b on b.id = r.id and b.is_new
        order by n.place
    loop
        if not answer.is_new and answer.found is null then
            raise exception using
                errcode = 'serialization_failure',
                message = format('the run that start %s named was removed meanwhile', answer.place),
                hint = 'Repeat the transaction.';
        elsif not answer.is_new and not answer.is_same then
            perform windlass.refuse(5, windlass.which(answer.place, cardinality(ids)) || format(
                '%s was used for %s',
                case
                    when answer.is_named then format('run id %s', answer.id)
                    else format('idempotency key %s', to_json(answer.key))
                end,
                case
                    when answer.maker is null then
                        format('run %s with another start', answer.found)
                    else format('start %s, which differs', answer.maker)
                end
            ));
        end if;
        place := answer.place;
        run_id := coalesce(answer.found, answer.id);
        is_new := answer.is_new;
        return next;
    end loop;
end
$$;

-- When whoever admits runs was last told of one, in milliseconds since 1970. A sequence is
-- outside of transactions: it is set and seen at once, without a lock, by all.
create sequence windlass.told_at minvalue 0 start 0;

-- Tells whoever admits runs that there are some, once this transaction is committed. Not for
-- each of many: a commit with a notification waits for all others that have one, and whoever
-- was told looks for more by itself for a while. And not where transactions may be prepared
-- for a two-phase commit, which one with a notification cannot be.
create function windlass.tell_of_starts()
returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    present constant bigint := extract(epoch from clock_timestamp()) * 1000;
    told_at constant bigint := (select s.last_value from windlass.told_at s);
begin
    if current_setting('max_prepared_transactions') = '0'
        and abs(present - told_at) > 10
    then
        perform setval('windlass.told_at', present);
        perform pg_notify('windlass', 't');
    end if;
end
$$;

-- Starts a batch of up to 10,000 runs, given as arrays of one length: the form for drivers.
-- All of them are started, or the statement fails. A null among the ids is an id to be made,
-- one among the versions is the newest version.
--
-- Answers the run of each start in their order, and whether this start made it. The start of
-- a key or id that is there already, with the same tenant, workflow, key and input, is
-- answered with the run it names. An id that is there twice for different starts is refused.
create function windlass.start_runs(
    ids uuid[],
    workflows text[],
    versions integer[],
    tenants text[],
    inputs json[],
    keys text[],
    delays interval[],
    priorities integer[],
    metadata jsonb[]
)
returns table ("position" integer, run_id uuid, is_new boolean)
-- With the rights of the owner of the schema: whoever may start runs need not be able to write
-- to the tables, where a wrong row could stop others.
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
-- One plan for every length of batch, whatever the caller's session prefers: it must never
-- read a table from end to end, and what it joins by index is right for one run and for ten
-- thousand.
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_indexscan = on
set enable_nestloop = on
set jit = off
as $$
#variable_conflict use_column
declare
    started_at constant timestamptz := clock_timestamp();
    batch constant integer := cardinality(workflows);
    bytes_max constant integer :=
        coalesce((select s.payload_limit from windlass.settings s where s.is_only), 1048576);
    definition_ids integer[];
    made uuid[];
    answers uuid[];
    are_new boolean[];
    culprit integer;
begin
    if (batch = all (array[
        cardinality(ids), cardinality(versions), cardinality(tenants), cardinality(inputs),
        cardinality(keys), cardinality(delays), cardinality(priorities), cardinality(metadata)
    ])) is not true then
        perform windlass.refuse(2, 'the arrays of a batch differ in their lengths');
    elsif batch > 10000 then
        perform windlass.refuse(5, format('a batch of %s is over the limit of 10000', batch));
    elsif batch = 0 then
        return;
    end if;

    select array_agg(n.definition_id), min(n.place) filter (where n.is_wrong)
    into definition_ids, culprit
    from (
        select
            s.place,
            d.id as definition_id,
            d.id is null
                or windlass.input_problem(s.workflow, s.input, bytes_max) is not null
                or windlass.start_problem(
                    s.workflow, s.tenant, s.key, s.delay, s.priority, s.metadata
                ) is not null as is_wrong
        from unnest(
            workflows, versions, tenants, inputs, keys, delays, priorities, metadata
        ) with ordinality
            as s (workflow, version, tenant, input, key, delay, priority, metadata, place)
        left join lateral (
            select d.id
            from windlass.definitions d
            where d.workflow = s.workflow and (s.version is null or d.version = s.version)
            order by d.version desc, d.revision desc
            limit 1
        ) d on true
        order by s.place
    ) n;
    if culprit is not null then
        perform windlass.refuse_start(
            windlass.which(culprit, batch),
            workflows[culprit], versions[culprit], tenants[culprit], inputs[culprit], bytes_max,
            keys[culprit], delays[culprit], priorities[culprit], metadata[culprit]
        );
    end if;

    if batch = 1 then
        ids := array(select coalesce(s.id, windlass.new_run_id()) from unnest(ids) as s (id));
    elsif array_position(ids, null) is not null then
        -- Ids that are made here sort like the places of their runs.
        select array_agg(coalesce(n.id, n.made))
        into ids
        from (
            select s.id, s.made
            from unnest(
                ids, array(select windlass.new_run_id() from generate_series(1, batch) order by 1)
            ) with ordinality as s (id, made, place)
            order by s.place
        ) n;
    end if;

    with made_runs as (
        insert into windlass.runs (
            id, definition_id, workflow, version, tenant, open_tasks, priority, created_at,
            key, metadata, input
        )
        select
            s.id, d.id, d.workflow, d.version, s.tenant, d.open_tasks, s.priority, started_at,
            s.key, nullif(s.metadata, '{}'), s.input
        from unnest(ids, definition_ids, tenants, priorities, keys, metadata, inputs)
            with ordinality
            as s (id, definition_id, tenant, priority, key, metadata, input, place)
        join windlass.definitions d on d.id = s.definition_id
        order by
            s.key collate "C" nulls first, s.tenant collate "C", d.workflow collate "C",
            case when s.key is null then s.id end, s.place
        on conflict do nothing
        returning id
    )
    select array_agg(m.id) into made from made_runs m;

    -- Takes back what has the key of a run that is gone. A run goes, and its key is kept, in one
    -- transaction, for which the insert above has waited.
    if num_nonnulls(variadic keys) > 0 then
        with taken_back as (
            delete from windlass.runs r
            where r.id = any (made) and r.key is not null and clock_timestamp() < (
                select k.expires_at
                from windlass.kept_keys k
                where k.tenant = r.tenant and k.workflow = r.workflow and k.key = r.key
            )
            returning r.id
        )
        select array_agg(m.id)
        into made
        from unnest(made) as m (id)
        where m.id not in (select t.id from taken_back t);
        -- A transaction with an older snapshot does not see a key that was kept since. What it
        -- cannot see it cannot write either: PostgreSQL refuses it then.
        if current_setting('transaction_isolation') <> 'read committed' then
            insert into windlass.kept_keys (tenant, workflow, key, run_id, expires_at, input)
            select r.tenant, r.workflow, r.key, r.id, '-infinity', 'null'
            from windlass.runs r
            where r.id = any (made) and r.key is not null
            order by r.key collate "C", r.tenant collate "C", r.workflow collate "C"
            on conflict do nothing;
            delete from windlass.kept_keys k
            where k.expires_at = '-infinity' and k.run_id = any (made);
        end if;
    end if;

    if cardinality(made) = batch then
        answers := ids;
        are_new := array_fill(true, array[batch]);
    else
        select array_agg(n.run_id), array_agg(n.is_new)
        into answers, are_new
        from (
            select m.run_id, m.is_new
            from windlass.match_starts(ids, workflows, tenants, inputs, keys, made) m
            order by m.place
        ) n;
    end if;

    with stored_history as (
        insert into windlass.history (run_id, at, lines)
        select s.id, started_at, E'\x04'
        from unnest(ids, are_new) as s (id, is_new)
        where s.is_new
    )
    insert into windlass.staged (run_id, delay)
    select s.id, s.delay
    from unnest(ids, delays, are_new) with ordinality as s (id, delay, is_new, place)
    where s.is_new
    order by s.place;

    perform windlass.tell_of_starts() where true = any (are_new);

    return query
    select s.place::integer, s.run_id, s.is_new
    from unnest(answers, are_new) with ordinality as s (run_id, is_new, place)
    order by s.place;
end
$$;

-- Starts a run and answers its id: that of the new run, or of the one that the key or the id
-- names already.
--
-- This and the form of a batch in JSON have the rights of the owner too, so that whoever may
-- call one of them needs no right to call what it calls.
create function windlass.start_run(
    workflow text,
    input json default 'null',
    tenant text default 'default',
    key text default null,
    delay interval default '0',
    priority integer default 0,
    metadata jsonb default null,
    version integer default null,
    id uuid default null
)
returns uuid language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return (
        select s.run_id
        from windlass.start_runs(
            array[id], array[workflow], array[version], array[tenant], array[input],
            array[key], array[delay], array[priority], array[metadata]
        ) s
    );
end
$$;

-- Fails with the first field of a batch that PostgreSQL cannot read as what it should be.
create function windlass.refuse_field(runs json)
returns void language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    start record;
    field record;
    name text;
    problem text;
    detail text;
begin
    for start in
        select e.run, windlass.which(e.place, json_array_length(runs)) as which
        from json_array_elements(runs) with ordinality as e (run, place)
        order by e.place
    loop
        name := null;
        begin
            -- The fields themselves cannot be told apart if a text among them cannot be read.
            for field in select f.key, f.value from json_each(start.run) as f (key, value) loop
                name := field.key;
                perform
                from json_to_record(json_build_object(field.key, field.value)) as r (
                    workflow text, input json, tenant text, key text, delay interval,
                    priority integer, metadata jsonb, version integer, id uuid
                );
            end loop;
        exception when data_exception then
            get stacked diagnostics problem = message_text, detail = pg_exception_detail;
            perform windlass.refuse(2, format(
                '%s%s cannot be read: %s%s',
                start.which, coalesce(to_json(name)::text, 'a text'), problem,
                ' (' || rtrim(nullif(detail, ''), '.') || ')'
            ));
        end;
    end loop;
end
$$;

-- Starts a batch of up to 10,000 runs, given as a JSON array of objects whose fields are the
-- parameters of `start_run`: the form for SQL.
create function windlass.start_runs(runs json)
returns table ("position" integer, run_id uuid, is_new boolean)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    size integer;
    batch record;
    culprit record;
begin
    if json_typeof(runs) is distinct from 'array' then
        perform windlass.refuse(2, format(
            'the batch is of the type %s, not an array', coalesce(json_typeof(runs), 'null')
        ));
    end if;
    size := json_array_length(runs);
    if size > 10000 then
        perform windlass.refuse(5, format('a batch of %s is over the limit of 10000', size));
    end if;

    select e.place, json_typeof(e.run) as type
    into culprit
    from json_array_elements(runs) with ordinality as e (run, place)
    where json_typeof(e.run) <> 'object'
    order by e.place
    limit 1;
    if found then
        perform windlass.refuse(2, windlass.which(culprit.place, size) || format(
            'the run to start is of the type %s, not an object', culprit.type
        ));
    end if;

    begin
        -- A field that is not known may be a tenant that was misspelt; of one that is there
        -- twice, nobody knows which is meant.
        select
            e.place,
            f.key,
            w.type as wanted,
            count(*) as times,
            min(json_typeof(f.value)) as type
        into culprit
        from json_array_elements(runs) with ordinality as e (run, place)
        cross join lateral json_each(e.run) as f (key, value)
        left join (
            values
                ('workflow', 'string'), ('input', 'value'), ('tenant', 'string'),
                ('key', 'string'), ('delay', 'string'), ('priority', 'number'),
                ('metadata', 'object'), ('version', 'number'), ('id', 'string')
        ) as w (key, type) on w.key = f.key
        group by e.place, f.key, w.type
        having w.type is null
            or count(*) > 1
            or w.type <> 'value'
                and min(json_typeof(f.value)) <> w.type
                and (min(json_typeof(f.value)) <> 'null' or f.key in ('workflow', 'tenant'))
        order by e.place, f.key
        limit 1;
        if found then
            perform windlass.refuse(2, windlass.which(culprit.place, size) || case
                when culprit.wanted is null then
                    format('field %s is not known', to_json(culprit.key))
                when culprit.times > 1 then
                    format('field %s is there %s times', to_json(culprit.key), culprit.times)
                else format(
                    '%s is of the type %s, not %s %s',
                    to_json(culprit.key), culprit.type,
                    case when culprit.wanted = 'object' then 'an' else 'a' end, culprit.wanted
                )
            end);
        end if;

        select
            coalesce(array_agg(r.id), '{}') as ids,
            coalesce(array_agg(r.workflow), '{}') as workflows,
            coalesce(array_agg(r.version), '{}') as versions,
            coalesce(array_agg(coalesce(r.tenant, 'default')), '{}') as tenants,
            coalesce(array_agg(coalesce(r.input, 'null')), '{}') as inputs,
            coalesce(array_agg(r.key), '{}') as keys,
            coalesce(array_agg(coalesce(r.delay, '0')), '{}') as delays,
            coalesce(array_agg(coalesce(r.priority, 0)), '{}') as priorities,
            coalesce(array_agg(r.metadata), '{}') as metadata
        into batch
        from (
            select r.*
            from rows from (
                json_to_recordset(runs) as (
                    workflow text, input json, tenant text, key text, delay interval,
                    priority integer, metadata jsonb, version integer, id uuid
                )
            ) with ordinality
                as r (workflow, input, tenant, key, delay, priority, metadata, version, id, place)
            order by r.place
        ) r;
    exception when data_exception then
        perform windlass.refuse_field(runs);
        raise;
    end;

    return query
    select s.position, s.run_id, s.is_new
    from windlass.start_runs(
        batch.ids, batch.workflows, batch.versions, batch.tenants, batch.inputs,
        batch.keys, batch.delays, batch.priorities, batch.metadata
    ) s
    order by s.position;
end
$$;

-- To see the schema is one thing, to start runs another. What only starts call is for nobody.
revoke execute on function
    windlass.start_run, windlass.start_runs(json),
    windlass.start_runs(
        uuid[], text[], integer[], text[], json[], text[], interval[], integer[], jsonb[]
    ),
    windlass.refuse, windlass.new_run_id, windlass.name_problem, windlass.without_strings,
    windlass.json_depth, windlass.has_half_character, windlass.large_number,
    windlass.input_problem, windlass.trace_problem, windlass.metadata_problem, windlass.start_problem, windlass.which,
    windlass.refuse_start, windlass.match_starts, windlass.tell_of_starts, windlass.refuse_field
from public;
