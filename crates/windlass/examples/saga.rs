//! A journey of three bookings, of which all are made or none is kept.
//!
//! Each step says how it is undone. If a later one fails, or the journey is cancelled while it
//! waits, what was booked is given back, the last booking first, by a run of its own: with
//! retries, across crashes, and for everyone to see.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use windlass::{Ctx, Error, Function, RunState, TaskError, Windlass};

/// What the other companies have in their books.
#[derive(Clone, Default)]
pub(crate) struct Bookings(Arc<Mutex<Vec<String>>>);

impl Bookings {
    fn write(&self, line: String) {
        let mut lines = self.0.lock().unwrap_or_else(|broken| broken.into_inner());
        // Both sides know a repetition by what it says.
        if !lines.contains(&line) {
            lines.push(line);
        }
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(|broken| broken.into_inner()))
    }

    async fn book(&self, what: &str) -> Result<String, TaskError> {
        if what.ends_with("the moon") {
            return Err(TaskError::new("nobody flies there").code("unknown").permanent());
        }
        self.write(format!("booked {what}"));
        Ok(format!("{what} #17"))
    }

    async fn give_back(self, booking: String) -> Result<(), TaskError> {
        self.write(format!("gave back {booking}"));
        Ok(())
    }
}

async fn travel(ctx: Ctx<String>, bookings: Bookings) -> Result<String, TaskError> {
    let undo = || {
        let bookings = bookings.clone();
        move |booking| bookings.give_back(booking)
    };
    let place = ctx.input();
    ctx.step("car", || bookings.book("a car")).compensate(undo()).await?;
    ctx.step("hotel", || bookings.book("a hotel")).compensate(undo()).await?;

    // Until it is confirmed, no process needs to live. Cancelled here, both are given back.
    ctx.signal::<()>("confirmed").await?;
    let flight = format!("a flight to {place}");
    ctx.step("flight", || bookings.book(&flight)).compensate(undo()).await
}

pub(crate) fn journey(bookings: &Bookings) -> Result<Function<String, String>, Error> {
    let bookings = bookings.clone();
    Function::new("journey", move |ctx| travel(ctx, bookings.clone()))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let bookings = Bookings::default();
    let journey = journey(&bookings)?;
    // Where WINDLASS_SERVER or DATABASE_URL says; in memory if neither is set.
    let windlass = Windlass::from_env().await?.unwrap_or_else(Windlass::memory);
    let worker = windlass.worker().register(&journey).spawn()?;

    let run = windlass.start(&journey, "Lisbon".to_owned()).await?;
    run.signal("confirmed", &()).await?;
    ensure!(run.wait().await?.state == RunState::Succeeded, "it can be booked");
    println!("{}", bookings.take().join(", "));

    let run = windlass.start(&journey, "the moon".to_owned()).await?;
    run.signal("confirmed", &()).await?;
    ensure!(run.wait().await?.state == RunState::Failed, "nobody flies there");
    let undo = run.undone_by().await?.context("two bookings were made")?;
    ensure!(undo.wait_timeout(Duration::from_secs(10)).await?.state == RunState::Succeeded);
    let lines = bookings.take();
    let given_back = ["gave back a hotel #17", "gave back a car #17"];
    ensure!(lines.ends_with(&given_back.map(str::to_owned)), "{lines:?}");
    println!("{}", lines.join(", "));

    worker.drain().await?;
    Ok(())
}
