//! How far a benchmark is, for people who watch.

use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::work::Counter;

/// How often a bar that follows a counter is drawn.
const DRAW_EVERY: Duration = Duration::from_millis(100);

/// Bars on the terminal, of which there are none if standard error is not one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    pub(crate) is_silent: bool,
}

impl Progress {
    /// A bar for one thing that is done; gone when it is dropped.
    pub(crate) fn phase(self, name: &'static str, total: u64) -> Phase {
        let target = match self.is_silent {
            true => ProgressDrawTarget::hidden(),
            false => ProgressDrawTarget::stderr(),
        };
        let bar = ProgressBar::with_draw_target(Some(total), target);
        let template = "{msg:10} {wide_bar:.dim} {human_pos} of {human_len} {elapsed}";
        let style = ProgressStyle::with_template(template);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(name);
        bar.enable_steady_tick(DRAW_EVERY);
        Phase(bar)
    }
}

/// One thing that is done.
pub(crate) struct Phase(ProgressBar);

impl Phase {
    /// Lets the bar follow a counter from now on.
    pub(crate) fn follow(&self, counter: &Arc<Counter>) {
        if self.0.is_hidden() {
            return;
        }
        let (bar, counter) = (self.0.clone(), Arc::downgrade(counter));
        tokio::spawn(async move {
            while let Some(counter) = counter.upgrade().filter(|_| !bar.is_finished()) {
                bar.set_position(counter.count());
                drop(counter);
                tokio::time::sleep(DRAW_EVERY).await;
            }
        });
    }

    /// One more is done.
    pub(crate) fn step(&self) {
        self.0.inc(1);
    }
}

impl Drop for Phase {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
