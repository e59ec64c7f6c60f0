//! The second wall between tenants: row level security.
//!
//! What one tenant reads is read in a transaction that begins by taking on another role of the
//! database and naming the tenant, both until its end and no longer, so that nothing of it is left
//! to whoever a pooler gives the connection to next. Of that role PostgreSQL itself shows only the
//! rows of the tenant that is named, and none if none is, whatever is asked for.
//!
//! Whoever can send SQL of their own as the role that connects is behind this wall already.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};

use windlass_core::Tenant;

use super::PostgresStore;
use super::check::{CHECK_SERVER, check_row_security};
use super::declared::Declarations;
use super::fault::{Fault, describe};
use super::floors::Floors;
use super::notify::Notifier;
use super::options::PostgresOptions;
use super::peek::Peeks;
use super::pool::Pool;
use super::roles::{SHARED_TABLES, WALLED_TABLES, WALLED_VIEWS, quoted};
use super::statements as sql;
use super::{Firsts, LastRing, Pass, StagedWatch, Unfired, Unsound, election};
use crate::{Error, ErrorKind};

/// A wall that a store has.
pub(super) struct Wall {
    role: String,
    /// Of a store that is behind it, where it stands.
    side: Option<Side>,
}

/// The tenant's side of a wall.
pub(super) struct Side {
    /// The role that is taken on.
    pub(super) role: String,
    /// The tenant that is named.
    pub(super) tenant: Tenant,
    /// Connections before the wall.
    pub(super) pool: Pool,
}

impl Wall {
    /// Makes sure that the wall stands, and that it can be gone behind.
    pub(super) async fn connect(
        options: &PostgresOptions,
        pool: &Pool,
        role: &str,
    ) -> Result<Self, Error> {
        let name = options.target()?.name();
        let wrong = |why: String| {
            let text = format!(
                "role {role:?} cannot be the wall between tenants in database {name}: {why}; \
                 `windlass migrate --grants` prints what makes it"
            );
            Error::new(ErrorKind::Database, text)
        };
        let told = |fault: Fault| match fault {
            Fault::Database(error) => wrong(describe(&error)),
            Fault::Answer(_)
            | Fault::Unavailable(_)
            | Fault::Unreachable(_)
            | Fault::Unnamed(_)
            | Fault::Unsound { .. } => wrong("it could not be looked at".to_owned()),
        };
        let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let (walled, shared) = (owned(&WALLED_TABLES), owned(&SHARED_TABLES));
        let views = owned(&WALLED_VIEWS);
        let mut connection = pool.get().await.map_err(told)?;
        let rows = connection.query(&CHECK_SERVER, &[]).await.map_err(told)?;
        let row = rows.first().expect("a select without a from has one row");
        check_row_security(row.get("version"), role, &name)?;
        let rows = connection.query(&sql::CHECK_WALL, &[&role, &walled, &shared, &views]).await;
        if let Some(row) = rows.map_err(told)?.first() {
            return Err(wrong(row.get(0)));
        }
        drop(connection);
        let wall = Wall { role: role.to_owned(), side: None };
        let entered = pool.beginning(&wall.enter(&Tenant::default()));
        let mut connection = entered.get().await.map_err(told)?;
        connection.query(&sql::CLOCK, &[]).await.map_err(told)?;
        Ok(wall)
    }

    /// What a transaction begins with.
    fn enter(&self, tenant: &Tenant) -> String {
        let hex: String = tenant.as_str().bytes().map(|byte| format!("{byte:02x}")).collect();
        // Whatever a name has in it, and however the server reads texts.
        format!(
            "select set_config('windlass.tenant', convert_from(decode('{hex}', 'hex'), 'utf8'), \
             true); set local role {}",
            quoted(&self.role)
        )
    }

    /// Where a store stands that is behind the wall.
    pub(super) fn side(&self) -> Option<&Side> {
        self.side.as_ref()
    }
}

impl PostgresStore {
    /// This store as a tenant sees it behind the wall, on the same connections. It can only read.
    pub(super) fn behind(&self, wall: &Wall, tenant: &Tenant) -> PostgresStore {
        let (role, pool) = (wall.role.clone(), self.pool.clone());
        let side = Some(Side { role: role.clone(), tenant: tenant.clone(), pool });
        let walled = self.pool.beginning(&wall.enter(tenant));
        PostgresStore {
            reads: self.reads.through(&walled),
            pool: walled,
            ring: LastRing::default(),
            floors: Floors::default(),
            peeks: Peeks::default(),
            declarations: Declarations::default(),
            firsts: Firsts::default(),
            unsound: Unsound::default(),
            staged_watch: StagedWatch::default(),
            passed_over: AtomicU32::new(0),
            pass: Pass::default(),
            undeletable: Unsound::default(),
            unfired: Unfired::default(),
            may_prepare: AtomicBool::new(false),
            payload_limit: self.payload_limit,
            election: election::by_row(),
            target: self.target.clone(),
            clock: self.clock.as_ref().map(Arc::clone),
            notifier: Notifier::silent(),
            wall: Some(Wall { role, side }),
        }
    }
}
