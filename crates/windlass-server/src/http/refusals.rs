//! Who was not let in: a line of the log for each, and how often.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::request::Parts;

use crate::connections::Whence;
use crate::problem::Problem;

/// The answers to whoever is not let in.
const STATUSES: [u16; 3] = [401, 403, 421];

/// The most characters of a path that are logged.
const PATH_CHARS_MAX: usize = 200;

/// How often each was given.
#[derive(Debug, Default)]
pub(super) struct Refusals([AtomicU64; STATUSES.len()]);

impl Refusals {
    /// Notes that a request was answered with a problem, if it was not let in.
    pub(super) fn note(&self, request: &Parts, problem: &Problem) {
        let status = problem.status().as_u16();
        let Some(place) = STATUSES.iter().position(|it| *it == status) else { return };
        self.0[place].fetch_add(1, Ordering::Relaxed);
        let origin = request.extensions.get::<Whence>().map_or("-", Whence::as_str);
        let path: String = request.uri.path().chars().take(PATH_CHARS_MAX).collect();
        let (method, why) = (&request.method, problem.detail());
        tracing::info!(status, origin, %method, path, why, "a request is refused");
    }

    /// For Prometheus.
    pub(super) fn text(&self) -> String {
        let name = "windlass_server_refused_total";
        let mut text = format!(
            "# HELP {name} Requests that were not let in, by the status of the answer.\n\
             # TYPE {name} counter\n"
        );
        for (status, count) in STATUSES.iter().zip(&self.0) {
            let count = count.load(Ordering::Relaxed);
            let _ = writeln!(text, "{name}{{status=\"{status}\"}} {count}");
        }
        text
    }
}
