//! A run exists if and only if the transaction that started it was committed (G13), whatever
//! becomes of sessions, while the engine admits what it sees.

use std::collections::BTreeSet;
use std::sync::Arc;

use fastrand::Rng;
use tokio_postgres::Client;
use windlass::store::Store;
use windlass::{Ctx, TaskError, Windlass, Workflow};

use super::{Shop, pid_of};

const CLIENTS: u64 = 6;
const TRANSACTIONS: u64 = 15;

/// What a client knows of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Committed,
    RolledBack,
    /// The session was lost with the commit under way.
    Unknown,
}

/// A transaction's orders, and how it ended.
struct Entry {
    orders: Vec<u64>,
    end: End,
}

struct Customer {
    rng: Rng,
    windlass: Windlass,
    order: Workflow<u64>,
    admin: Client,
}

impl Customer {
    /// One transaction: a few orders, each with its run, and an end that is left to chance.
    async fn trade(&mut self, mut session: Client, first: u64) -> Entry {
        let pid = pid_of(&session).await;
        let mut orders = Vec::new();
        let begin = ["begin", "begin isolation level repeatable read"];
        session.batch_execute(begin[self.rng.usize(..2)]).await.expect("a transaction begins");
        for id in first..first + self.rng.u64(1..5) {
            session.batch_execute("savepoint before").await.expect("the session is there");
            self.order(&mut session, id).await;
            if self.rng.u8(..4) == 0 {
                session.batch_execute("rollback to before").await.expect("the session is there");
                // What was taken back can be done once more.
                if self.rng.bool() {
                    continue;
                }
                self.order(&mut session, id).await;
            }
            orders.push(id);
        }
        let end = match self.rng.u8(..8) {
            0..=2 => {
                session.batch_execute("commit").await.expect("it is committed");
                End::Committed
            }
            3 => {
                session.batch_execute("rollback").await.expect("it is rolled back");
                End::RolledBack
            }
            4 => {
                self.terminate(pid).await;
                let commit = session.batch_execute("commit").await;
                commit.expect_err("the session is gone");
                End::RolledBack
            }
            5 => {
                drop(session);
                End::RolledBack
            }
            _ => {
                let (commit, ()) =
                    tokio::join!(session.batch_execute("commit"), self.terminate(pid));
                if commit.is_ok() { End::Committed } else { End::Unknown }
            }
        };
        Entry { orders, end }
    }

    /// Writes an order and starts its run, in one of the ways there are.
    async fn order(&mut self, session: &mut Client, id: u64) {
        session.batch_execute(&format!("insert into orders values ({id})")).await.expect("it is");
        let key = format!("order-{id}");
        match self.rng.u8(..3) {
            0 => {
                let sql = format!("select windlass.start_run('trade', '{id}', key => '{key}')");
                session.batch_execute(&sql).await.expect("it is started");
            }
            1 => {
                let batch = serde_json::json!([{"workflow": "trade", "input": id, "key": key}]);
                let sql = format!("select run_id from windlass.start_runs('{batch}')");
                session.batch_execute(&sql).await.expect("it is started");
            }
            _ => {
                let start = self.windlass.start(&self.order, id).key(key);
                start.in_transaction(session).await.expect("it is started");
            }
        }
    }

    async fn terminate(&self, pid: i32) {
        let sql = "select pg_terminate_backend($1)";
        self.admin.execute(sql, &[&pid]).await.expect("the administrator is there");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_exists_if_and_only_if_its_transaction_was_committed() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let shop = Shop::open().await;
    shop.run("create table orders (id bigint primary key)").await;
    let mut order = Workflow::<u64>::builder("trade");
    order.task("ship").run(async |_: Ctx<u64>| Ok::<_, TaskError>(()));
    let order = order.build().expect("the workflow is right");
    shop.store.register(Arc::clone(order.definition())).await.expect("it can be registered");

    let store = Arc::clone(&shop.store);
    let engine = tokio::spawn(async move {
        loop {
            store.promote_due(20).await.expect("the store is there");
            tokio::task::yield_now().await;
        }
    });
    let mut customers = Vec::new();
    for number in 0..CLIENTS {
        let mut customer = Customer {
            rng: Rng::with_seed(seed.wrapping_add(number)),
            windlass: Windlass::with_store(Arc::clone(&shop.store) as Arc<dyn Store>),
            order: order.clone(),
            admin: shop.database.client().await,
        };
        let mut sessions = Vec::new();
        for _ in 0..TRANSACTIONS {
            sessions.push(shop.database.client().await);
        }
        customers.push(tokio::spawn(async move {
            let mut ledger = Vec::new();
            for (transaction, session) in (0..).zip(sessions) {
                let first = 100 * (TRANSACTIONS * number + transaction);
                ledger.push(customer.trade(session, first).await);
            }
            ledger
        }));
    }
    let mut ledger = Vec::new();
    for customer in customers {
        ledger.extend(customer.await.expect("no panic"));
    }
    engine.abort();
    assert!(engine.await.expect_err("it has no end").is_cancelled(), "the engine went on");
    wait_until_all_sessions_have_ended(&shop).await;

    let orders = numbers(&shop, "select id from orders").await;
    let keys = "select substr(key, 7)::bigint from windlass.runs where workflow = 'trade'";
    assert_eq!(numbers(&shop, keys).await, orders, "an order and its run are one");
    for entry in &ledger {
        let there = entry.orders.iter().filter(|id| orders.contains(id)).count();
        let expected = match entry.end {
            End::Committed => entry.orders.len(),
            End::RolledBack => 0,
            End::Unknown if there == 0 => 0,
            End::Unknown => entry.orders.len(),
        };
        assert_eq!(there, expected, "{:?}: {:?}", entry.end, entry.orders);
    }
    let ended = |end| ledger.iter().filter(|entry| entry.end == end).count();
    assert!(ended(End::Committed) > 0 && ended(End::RolledBack) > 0);

    // Every run is whole, and none is forgotten by the engine.
    let admitted = async {
        // A sweep may begin behind what was committed late, and leave it to the next.
        while shop.count("windlass.staged").await > 0 {
            shop.store.promote_due(1_000).await.expect("the store is there");
        }
    };
    tokio::time::timeout(super::PATIENCE, admitted).await.expect("none is left behind");
    let runs = i64::try_from(orders.len()).expect("not that many");
    assert_eq!(shop.rows().await, [runs, 2 * runs, 0]);
    assert_eq!(shop.count("windlass.ready").await, runs);
}

async fn numbers(shop: &Shop, sql: &str) -> BTreeSet<u64> {
    let rows = shop.user.query(sql, &[]).await.expect("looking works");
    rows.iter().map(|row| row.get::<_, i64>(0).cast_unsigned()).collect()
}

/// A session that was dropped rolls back when the server notices, also one in the middle of a
/// statement.
async fn wait_until_all_sessions_have_ended(shop: &Shop) {
    let open = "pg_stat_activity where datname = current_database()
        and backend_type = 'client backend' and state <> 'idle' and pid <> pg_backend_pid()";
    let ended = async {
        while shop.count(open).await > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(super::PATIENCE, ended).await.expect("sessions end");
}
