//! The workflows that the database knows.

use std::sync::Arc;

use super::PostgresStore;
use super::fault::Fault;
use super::pool::Params;
use super::statements as sql;
use super::time::At;
use super::writes::Writes;
use crate::store::{WorkflowFilter, WorkflowPage, WorkflowRecord};

impl PostgresStore {
    pub(super) async fn list_workflows_once(
        &self,
        filter: &WorkflowFilter,
    ) -> Result<WorkflowPage, Fault> {
        let name = filter.name.as_ref().map(|name| name.as_str());
        let after_name = filter.after.as_ref().map(|after| after.name.as_str());
        let after_version = filter.after.as_ref().map(|after| after.version.get().cast_signed());
        let most = filter.most();
        let rows_max = i64::try_from(most).unwrap_or(i64::MAX).saturating_add(1);
        let mut connection = self.pool.get().await?;
        let tx = connection.begin();
        let params: Params<'_> = &[&name, &after_name, &after_version, &rows_max];
        let rows = tx.query(&sql::LIST_WORKFLOWS, params).await?;
        let ids = rows.iter().map(|row| row.get::<_, i32>("id"));
        let definitions = tx.names().definitions(&tx, ids).await?;
        tx.commit(Writes::default()).await?;
        let record = |row: &tokio_postgres::Row| WorkflowRecord {
            definition: Arc::clone(&definitions[&row.get("id")]),
            registered_at: row.get::<_, At>("registered_at").0,
        };
        Ok(WorkflowPage::cut(rows.iter().map(record).collect(), most))
    }
}
