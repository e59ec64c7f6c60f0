//! What operators did.

use serde::de::DeserializeOwned;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;
use windlass_core::{ActionId, Operator, Payload, RunId, Tenant, TokenId};

use super::PostgresStore;
use super::fault::Fault;
use super::handout::payload;
use super::pool::Tx;
use super::statements as sql;
use super::time::At;
use crate::store::log::{another_action, answer_of};
use crate::store::{
    Action, Author, LogEntry, LogFilter, LogPage, NewLogEntry, PAGE_MAX, StoreError,
};

/// The name of a page of the log, for errors.
const LISTING: &str = "the operator log";

impl PostgresStore {
    /// Begins an entry; answers whether there was none of this id.
    pub(super) async fn begin_action(
        &self,
        tx: &Tx<'_>,
        id: ActionId,
        by: &Author,
        action: Action,
        tenant: Option<&Tenant>,
    ) -> Result<bool, Fault> {
        let (tenant, clock) = (tenant.map(Tenant::as_str), self.test_time());
        let (name, token) = (by.name.as_str(), by.token.as_ref().map(TokenId::as_str));
        let params: [&(dyn ToSql + Sync); 7] =
            [id.as_uuid(), &name, &action.word(), &tenant, &clock, &token, &by.origin];
        Ok(!tx.query(&sql::BEGIN_ACTION, &params).await?.is_empty())
    }

    /// What an action answered that is asked for again.
    pub(super) async fn repeated<T: DeserializeOwned>(
        &self,
        tx: &Tx<'_>,
        id: ActionId,
        action: Action,
    ) -> Result<T, Fault> {
        let rows = tx.query(&sql::FIND_ACTION, &[id.as_uuid()]).await?;
        let row = rows.first().ok_or_else(|| {
            StoreError::Unavailable(format!("action {id} is there and cannot be seen"))
        })?;
        check_action(id, row, action)?;
        Ok(answer_of(id, row.get("detail"))?)
    }

    pub(super) async fn log_once(&self, entry: &NewLogEntry) -> Result<ActionId, Fault> {
        let line = Line::of(entry, self.test_time());
        if !self.read(&sql::LOG_ACTION, &line.params()).await?.is_empty() {
            return Ok(entry.id);
        }
        let rows = self.read(&sql::FIND_ACTION, &[entry.id.as_uuid()]).await?;
        rows.first().map_or(Ok(()), |row| check_action(entry.id, row, entry.action))?;
        Ok(entry.id)
    }

    /// Writes an entry down with what else a transaction does, unless there is one of its id.
    pub(super) async fn log_in(&self, tx: &Tx<'_>, entry: &NewLogEntry) -> Result<(), Fault> {
        let line = Line::of(entry, self.test_time());
        tx.query(&sql::LOG_ACTION, &line.params()).await.map(drop)
    }

    pub(super) async fn list_log_once(&self, filter: &LogFilter) -> Result<LogPage, Fault> {
        let LogFilter { run, action, by, tenant, before, limit } = filter;
        let limit = match *limit {
            0 => PAGE_MAX,
            limit => limit.min(PAGE_MAX),
        };
        let action = action.map(Action::word);
        let by = by.as_ref().map(Operator::as_str);
        let tenant = tenant.as_ref().map(Tenant::as_str);
        let before = before.map(|before| i64::try_from(before).unwrap_or(i64::MAX));
        let most = i64::try_from(limit + 1).unwrap_or(i64::MAX);
        let rows = match run {
            Some(run) => {
                let params: [&(dyn ToSql + Sync); 6] =
                    [run.as_uuid(), &action, &by, &before, &most, &tenant];
                self.reads.query(LISTING, &sql::LIST_LOG_OF_RUN, &params).await?
            }
            None => {
                self.reads
                    .query(LISTING, &sql::LIST_LOG, &[&action, &by, &before, &most, &tenant])
                    .await?
            }
        };
        let mut entries = rows.iter().map(entry).collect::<Result<Vec<_>, _>>()?;
        let has_more = entries.len() > limit;
        entries.truncate(limit);
        let next = entries.last().filter(|_| has_more).map(|entry| entry.number);
        Ok(LogPage { entries, next })
    }

    /// The time of a test's clock; the database has its own.
    pub(super) fn test_time(&self) -> Option<At> {
        self.clock.as_ref().map(|clock| At(clock.now()))
    }
}

/// The parameters of [`sql::LOG_ACTION`].
struct Line<'a> {
    id: &'a Uuid,
    name: &'a str,
    action: &'static str,
    tenant: Option<&'a str>,
    clock: Option<At>,
    run: Option<Uuid>,
    detail: Option<&'a str>,
    token: Option<&'a str>,
    origin: &'a Option<String>,
}

impl<'a> Line<'a> {
    fn of(entry: &'a NewLogEntry, clock: Option<At>) -> Self {
        let NewLogEntry { id, by, action, tenant, run, detail } = entry;
        Line {
            id: id.as_uuid(),
            name: by.name.as_str(),
            action: action.word(),
            tenant: tenant.as_ref().map(Tenant::as_str),
            clock,
            run: run.map(|run| *run.as_uuid()),
            detail: detail.as_ref().map(Payload::as_str),
            token: by.token.as_ref().map(TokenId::as_str),
            origin: &by.origin,
        }
    }

    fn params(&self) -> [&(dyn ToSql + Sync); 9] {
        let Line { id, name, action, tenant, clock, run, detail, token, origin } = self;
        [*id, name, action, tenant, clock, run, detail, token, *origin]
    }
}

fn check_action(id: ActionId, row: &Row, asked: Action) -> Result<(), Fault> {
    let there = row.get::<_, &str>("action").parse().map_err(|error| wrong(id, error))?;
    if there == asked { Ok(()) } else { Err(another_action(id, there, asked).into()) }
}

fn wrong(id: ActionId, error: impl std::fmt::Display) -> Fault {
    StoreError::Corrupt(format!("entry {id} of the log: {error}")).into()
}

fn entry(row: &Row) -> Result<LogEntry, Fault> {
    let id = ActionId::from_uuid(row.get("id"));
    let detail: Option<&str> = row.get("detail");
    let detail =
        detail.map(|text| payload(text, || format!("the detail of entry {id} of the log")));
    let tenant: Option<&str> = row.get("tenant");
    let runs: Vec<Uuid> = row.get("runs");
    let token: Option<&str> = row.get("token");
    Ok(LogEntry {
        number: row.get::<_, i64>("number").cast_unsigned(),
        id,
        at: row.get::<_, At>("at").0,
        by: Author {
            name: Operator::new(row.get::<_, &str>("operator"))
                .map_err(|error| wrong(id, error))?,
            token: token.map(str::parse).transpose().map_err(|error| wrong(id, error))?,
            origin: row.get("origin"),
        },
        action: row.get::<_, &str>("action").parse().map_err(|error| wrong(id, error))?,
        tenant: tenant.map(Tenant::new).transpose().map_err(|error| wrong(id, error))?,
        runs: runs.into_iter().map(RunId::from_uuid).collect(),
        detail: detail.transpose()?,
    })
}
