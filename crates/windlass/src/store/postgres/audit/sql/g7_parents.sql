-- G7.parents: a task runs or is skipped when its parents have ended, as its trigger says
--
-- For every event that takes a task out of `pending` (other than a cancel), the states of
-- its parents at that moment are looked up: each event of a parent holds from its own id
-- until that of the parent's next. An on-failure task waits for all others, and runs if one
-- of them failed. The triggers are written out here once more instead of being taken from
-- the engine.
--
-- What comes out of definitions is materialized: joined where it is made, it would be made
-- again for each of them.
with moves as (
    select
        e.run_id, e.idx, e.id, e.from_state, e.to_state,
        lead(e.id) over (partition by e.run_id, e.idx order by e.id) as next_id
    from windlass.events e
    where e.idx is not null and {scope e.run_id}
),
awaited as (
    select p.definition_id, p.idx, p.parent
    from (
        {parents}
    ) p
    union all
    select d.definition_id, d.idx, o.idx
    from windlass.definition_tasks d
    join windlass.definition_tasks o on o.definition_id = d.definition_id and o.idx <> d.idx
    where d.kind = 'on_failure'
),
triggers as materialized (
    select
        s.definition_id, s.idx,
        case s.kind when 'on_failure' then 'on_failure' else s.spec ->> 'trigger' end as rule
    from (
        {specs}
    ) s
),
decided as (
    select
        m.run_id, m.idx, m.id, m.to_state, r.definition_id,
        count(a.parent) filter (
            where p.to_state is null or p.to_state not in ({final})
        ) as open,
        count(1) filter (where p.to_state = 'failed') as failed,
        count(1) filter (where p.to_state = 'skipped') as skipped,
        count(1) filter (where p.to_state = 'cancelled') as cancelled
    from moves m
    join windlass.runs r on r.id = m.run_id
    left join awaited a on a.definition_id = r.definition_id and a.idx = m.idx
    left join moves p
        on p.run_id = m.run_id
        and p.idx = a.parent
        and p.id < m.id
        and (p.next_id is null or p.next_id > m.id)
    where m.from_state = 'pending' and m.to_state <> 'cancelled'
    group by m.run_id, m.idx, m.id, m.to_state, r.definition_id
)
select
    case
        when
            d.open > 0
            or (d.to_state <> 'skipped') is distinct from
                case t.rule
                    when 'all_succeeded' then d.failed + d.skipped + d.cancelled = 0
                    when 'all_finished' then true
                    when 'any_failed' then d.failed > 0
                    when 'none_failed' then d.failed + d.cancelled = 0
                    when 'on_failure' then d.failed > 0
                end
        then
            format(
                'task %s/%s became %s at event %s by trigger %s with %s parents open, %s failed, %s skipped, %s cancelled',
                d.run_id, d.idx, d.to_state, d.id, t.rule, d.open, d.failed, d.skipped, d.cancelled
            )
    end as problem
from decided d
join triggers t on t.definition_id = d.definition_id and t.idx = d.idx
