//! When a cron expression fires, and what shifted clocks do to it.

use std::time::{Duration, SystemTime};

use axum::Json;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::schedule::{Cadence, CadenceError, Shift, Zone};
use windlass::{ErrorKind, Timestamp};

use super::App;
use super::extract::Query;
use super::model::{PAGE_MAX, Time};
use crate::identity::Identity;
use crate::problem::Problem;

/// How many times are told if nothing is said.
const TIMES_DEFAULT: u32 = 10;

/// How far ahead shifted clocks are looked for, and in how many fires.
const AHEAD: Duration = Duration::from_secs(2 * 366 * 86_400);
const LOOKS_MAX: usize = 10_000;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(explain_cron))
}

/// What to explain.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct CronQuery {
    /// The cron expression, such as `0 2 * * MON-FRI`.
    #[param(min_length = 1, max_length = 1000)]
    expression: String,
    /// Its time zone; `UTC` if nothing is said.
    #[param(max_length = 200)]
    zone: Option<String>,
    /// Behind which time; now if nothing is said.
    #[param(value_type = Option<String>, format = DateTime)]
    after: Option<Time>,
    /// How many times.
    #[param(minimum = 1, maximum = 1000, default = 10)]
    limit: Option<u32>,
}

/// When a cron expression fires.
#[derive(Debug, PartialEq, Serialize, ToSchema)]
struct CronTimes {
    /// The times, the first one first.
    fires: Vec<CronTime>,
    /// The next one that shifted clocks matter to, if it is not among them.
    next_shifted: Option<CronTime>,
    /// Up to which time shifted clocks were looked for.
    looked_until: Time,
}

/// A time at which a cron expression fires.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
struct CronTime {
    /// When it is.
    at: Time,
    /// What the clocks of the zone show then.
    local: String,
    /// What shifted clocks do to it.
    shift: Option<ShiftWord>,
}

/// What shifted clocks do to a time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Shift)]
enum ShiftWord {
    /// They skip it: it fires once, at the shift.
    Skipped,
    /// They show it twice: it fires once, the first time.
    Repeated,
}

/// When a cron expression fires, and what shifted clocks do to it.
#[utoipa::path(get, path = "/v1/explain-cron", tag = "schedules", params(CronQuery),
    responses((status = 200, description = "The times.", body = CronTimes)),
)]
async fn explain_cron(
    _identity: Identity,
    Query(query): Query<CronQuery>,
) -> Result<Json<CronTimes>, Problem> {
    let limit = query.limit.unwrap_or(TIMES_DEFAULT) as usize;
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(Problem::field("limit", format_args!("{limit} is not within 1 to {PAGE_MAX}")));
    }
    let after = query.after.map_or_else(|| SystemTime::now().into(), |Time(after)| after);
    let zone = query.zone.unwrap_or_else(|| "UTC".to_owned());
    // Thousands of times take a while, and others have this thread to themselves meanwhile.
    let explaining =
        tokio::task::spawn_blocking(move || explain(&query.expression, &zone, after, limit));
    let explained = explaining.await.map_err(|error| {
        Problem::new(ErrorKind::Unavailable, format!("the times were not computed: {error}"))
    })?;
    Ok(Json(explained?))
}

fn explain(
    expression: &str,
    zone: &str,
    after: Timestamp,
    limit: usize,
) -> Result<CronTimes, Problem> {
    let wrong = |error: CadenceError| Problem::from(windlass::Error::from(error));
    let cadence = Cadence::cron(expression, zone).map_err(wrong)?;
    let zone: Zone = zone.parse().map_err(|error| wrong(CadenceError::from(error)))?;
    let time = |(at, shift): (Timestamp, Shift)| CronTime {
        at: at.into(),
        local: zone.shown(at),
        shift: match shift {
            Shift::None => None,
            Shift::Skipped => Some(ShiftWord::Skipped),
            Shift::Repeated => Some(ShiftWord::Repeated),
        },
    };
    let first = cadence.next_shifted(after);
    let mut all = std::iter::successors(first, |(at, _)| cadence.next_shifted(*at));
    let fires: Vec<CronTime> = all.by_ref().take(limit).map(time).collect();
    let last = fires.last().map_or(after, |last| last.at.0);
    if fires.iter().any(|fire| fire.shift.is_some()) {
        return Ok(CronTimes { fires, next_shifted: None, looked_until: last.into() });
    }
    let (mut until, mut looks) = (last, 0);
    for (at, shift) in all.take(LOOKS_MAX).take_while(|(at, _)| *at < after + AHEAD) {
        (until, looks) = (at, looks + 1);
        if shift != Shift::None {
            let next_shifted = Some(time((at, shift)));
            return Ok(CronTimes { fires, next_shifted, looked_until: at.into() });
        }
    }
    // If it was not for their number, there is none up to the end.
    let looked_until = if looks == LOOKS_MAX { until } else { until.max(after + AHEAD) };
    Ok(CronTimes { fires, next_shifted: None, looked_until: looked_until.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("it is a time")
    }

    #[test]
    fn times_are_told_with_what_shifted_clocks_do() {
        let times = explain("30 2 * * *", "Europe/Berlin", at("2026-03-27T12:00:00Z"), 3).unwrap();
        let shifts: Vec<_> = times.fires.iter().map(|fire| fire.shift).collect();
        assert_eq!(shifts, [None, Some(ShiftWord::Skipped), None]);
        assert_eq!(times.fires[1].local, "Sun 2026-03-29 03:00:00 +02:00");
        assert_eq!(times.fires[2].at.0, at("2026-03-30T00:30:00Z"));
        assert_eq!(times.next_shifted, None);
    }

    #[test]
    fn the_next_shift_is_told_if_it_is_not_among_the_times() {
        let from = at("2026-01-01T00:00:00Z");
        let times = explain("30 2 * * *", "Europe/Berlin", from, 2).unwrap();
        assert_eq!(times.next_shifted.unwrap().local, "Sun 2026-03-29 03:00:00 +02:00");
        let none = explain("0 2 * * MON-FRI", "Europe/Berlin", from, 2).unwrap();
        assert_eq!((none.next_shifted, none.looked_until.0), (None, from + AHEAD));
        let many = explain("* * * * * *", "Europe/Berlin", from, 2).unwrap();
        assert_eq!(many.looked_until.0, from + Duration::from_secs(2 + LOOKS_MAX as u64));
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        let wrong = |expression, zone| {
            explain(expression, zone, at("2026-01-01T00:00:00Z"), 1).unwrap_err()
        };
        assert!(wrong("0 25 * * *", "UTC").detail().contains("at character 3"));
        assert!(wrong("0 2 * * *", "Europe/Berln").detail().contains("Europe/Berlin"));
        assert!(wrong("0 0 31 2 *", "UTC").status().is_client_error());
    }
}
