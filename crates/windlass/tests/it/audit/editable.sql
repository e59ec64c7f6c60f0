-- Makes the views of a told story writable, so that what is made wrong in it can be said in
-- the words of tasks and events.
--
-- First every event gets a row of its own, and the rows are numbered in tens, so that some
-- can be put in between: an event's id is 4096 times the number of its row.
create table public.exploded as
select
    row_number() over (order by e.id) * 10 as id, e.run_id, e.at,
    split_part(h.lines, E'\n', (e.id % 4096 + 1)::integer) as lines
from windlass.events e
join windlass.history h on h.run_id = e.run_id and h.id = e.entry;

delete from windlass.history;

insert into windlass.history (run_id, id, at, lines) overriding system value
select x.run_id, x.id, x.at, x.lines from public.exploded x;

select setval(pg_get_serial_sequence('windlass.history', 'id'), max(x.id)) from public.exploded x;

drop table public.exploded;

create function public.edit_event() returns trigger language plpgsql as $$
declare
    line text;
begin
    if tg_op <> 'INSERT' then
        delete from windlass.history h where h.run_id = old.run_id and h.id = old.entry;
    end if;
    if tg_op = 'DELETE' then
        return old;
    end if;
    line := concat_ws(
        ' ', coalesce(new.idx::text, '-'), new.kind, coalesce(new.from_state, '-'), new.to_state,
        coalesce(new.fence::text, '-'), coalesce(new.attempt::text, '-')
    ) || coalesce(E'\t' || new.detail, '');
    insert into windlass.history (run_id, id, at, lines) overriding system value
    values (
        new.run_id,
        coalesce(new.id / 4096, nextval(pg_get_serial_sequence('windlass.history', 'id'))),
        new.at, line
    );
    return new;
end
$$;

create trigger edit_event instead of insert or update or delete on windlass.events
for each row execute function public.edit_event();

create function public.edit_task() returns trigger language plpgsql as $$
begin
    delete from windlass.task_rows t where t.run_id = old.run_id and t.idx = old.idx;
    insert into windlass.task_rows (
        run_id, idx, state, fence, attempt, pending_parents, failed_parents, skipped_parents,
        answered_fence, answered_verb, failure, output
    )
    values (
        new.run_id, new.idx, new.state, new.fence, new.attempt, new.pending_parents,
        new.failed_parents, new.skipped_parents, new.answered_fence, new.answered_verb,
        new.failure, case when new.output::text <> 'null' then new.output end
    );
    return new;
end
$$;

create trigger edit_task instead of update on windlass.tasks
for each row execute function public.edit_task();
