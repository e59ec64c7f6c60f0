//! What a verb writes at its end, gathered to be sent with its commit.

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::fault::Fault;
use super::pool::{Ask, Sql};

/// A parameter that its statement owns.
pub(super) type Param<'a> = Box<dyn ToSql + Sync + Send + 'a>;

/// Makes the parameters of a statement of a list of values.
macro_rules! params {
    ($($value:expr),* $(,)?) => {
        vec![$(Box::new($value) as $crate::store::postgres::writes::Param<'_>),*]
    };
}
pub(super) use params;

/// Says what is wrong with the rows of a statement.
type Check<'a> = Box<dyn Fn(&[Row]) -> Result<(), Fault> + Send + Sync + 'a>;

/// Statements to be sent together, none of which needs the answer to another.
#[derive(Default)]
pub(super) struct Writes<'a>(Vec<Write<'a>>);

struct Write<'a> {
    sql: &'static Sql,
    params: Vec<Param<'a>>,
    check: Option<Check<'a>>,
}

impl<'a> Writes<'a> {
    pub(super) fn push(&mut self, sql: &'static Sql, params: Vec<Param<'a>>) {
        self.0.push(Write { sql, params, check: None });
    }

    /// A statement whose rows say whether all the others may be committed. The commit waits
    /// for them.
    pub(super) fn push_checked(
        &mut self,
        sql: &'static Sql,
        params: Vec<Param<'a>>,
        check: impl Fn(&[Row]) -> Result<(), Fault> + Send + Sync + 'a,
    ) {
        self.0.push(Write { sql, params, check: Some(Box::new(check)) });
    }

    /// Puts others behind these.
    pub(super) fn append(&mut self, others: Writes<'a>) {
        self.0.extend(others.0);
    }

    pub(super) fn has_checks(&self) -> bool {
        self.0.iter().any(|write| write.check.is_some())
    }

    /// Judges the rows of all of them.
    pub(super) fn check(&self, rows: &[Vec<Row>]) -> Result<(), Fault> {
        self.0.iter().zip(rows).try_for_each(|(write, rows)| match &write.check {
            Some(check) => check(rows),
            None => Ok(()),
        })
    }

    /// The parameters of each, for [`Writes::asks`].
    pub(super) fn params(&self) -> Vec<Vec<&(dyn ToSql + Sync)>> {
        fn lend<'b>(param: &'b Param<'_>) -> &'b (dyn ToSql + Sync) {
            &**param
        }
        self.0.iter().map(|write| write.params.iter().map(lend).collect()).collect()
    }

    pub(super) fn asks<'b>(&'b self, params: &'b [Vec<&'b (dyn ToSql + Sync)>]) -> Vec<Ask<'b>> {
        self.0.iter().zip(params).map(|(write, params)| (write.sql, params.as_slice())).collect()
    }
}
