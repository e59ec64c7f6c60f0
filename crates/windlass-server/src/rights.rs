//! What each operation needs: the one table, of every path and method.
//!
//! An operation that is not listed is refused to everyone, and a test compares the table with the
//! paths and services that there are.

use axum::http::Method;
use windlass::{Role, Roles};

/// What an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Nobody is asked who they are: it says nothing of anyone.
    Open,
    /// Reads the metrics of the server, which show no run.
    Measure,
    /// Looks at something.
    Read,
    /// Starts runs, sends signals and declares schedules, as programs do.
    Submit,
    /// Works on tasks, and does duties of programs.
    Work,
    /// Changes what becomes of runs, schedules and dead letters.
    Steer,
    /// Changes what holds for everyone, and who may do what.
    Administer,
}

impl Right {
    /// Whether one of these roles has it.
    pub fn is_of(self, roles: Roles) -> bool {
        roles.iter().any(|role| match (self, role) {
            (Right::Open | Right::Measure, _) | (_, Role::Admin) => true,
            (Right::Read, Role::Viewer | Role::Worker | Role::Operator) => true,
            (Right::Submit, Role::Worker | Role::Operator) => true,
            (Right::Work, Role::Worker) | (Right::Steer, Role::Operator) => true,
            (_, Role::Metrics)
            | (Right::Submit | Right::Work | Right::Steer | Right::Administer, Role::Viewer)
            | (Right::Work | Right::Administer, Role::Operator)
            | (Right::Steer | Right::Administer, Role::Worker) => false,
        })
    }

    /// The roles that have it, for people.
    pub(crate) fn words(self) -> String {
        let words: Vec<&str> = self.roles().map(Role::word).collect();
        words.join(" or ")
    }

    /// The roles that have it.
    pub(crate) fn roles(self) -> impl Iterator<Item = Role> {
        Role::ALL.into_iter().filter(move |role| self.is_of(Roles::from(*role)))
    }
}

/// Whether it is about the things of one tenant, or about what all of them share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Of one tenant: who has one does it for that one.
    Tenant,
    /// Of all tenants: who has one cannot do it.
    All,
}

/// What an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// What it is.
    pub right: Right,
    /// Whose things it is about.
    pub reach: Reach,
}

use Reach::{All, Tenant};
use Right::{Administer, Measure, Open, Read, Steer, Submit, Work};

/// Every operation of HTTP: its method, its path and what it needs.
pub const HTTP: &[(&str, &str, Right, Reach)] = &[
    ("GET", "/healthz", Open, Tenant),
    ("GET", "/readyz", Open, Tenant),
    ("GET", "/errors/{code}", Open, Tenant),
    ("GET", "/v1/openapi.json", Open, Tenant),
    ("GET", "/metrics", Measure, All),
    ("GET", "/v1/archived-runs/{run}", Read, Tenant),
    ("GET", "/v1/dead-letters", Read, Tenant),
    ("POST", "/v1/dead-letters/discard", Steer, Tenant),
    ("POST", "/v1/dead-letters/redrive", Steer, Tenant),
    ("GET", "/v1/dead-letters/stream", Read, Tenant),
    ("GET", "/v1/duties", Read, All),
    ("DELETE", "/v1/duties/{duty}", Steer, All),
    ("GET", "/v1/explain-cron", Read, Tenant),
    ("GET", "/v1/leaders", Read, All),
    ("GET", "/v1/log", Read, Tenant),
    ("GET", "/v1/queues", Read, All),
    ("GET", "/v1/queues/stream", Read, All),
    ("DELETE", "/v1/quotas", Administer, All),
    ("GET", "/v1/quotas", Read, All),
    ("PUT", "/v1/quotas", Administer, All),
    ("DELETE", "/v1/retention", Administer, All),
    ("GET", "/v1/retention", Read, All),
    ("PUT", "/v1/retention", Administer, All),
    ("POST", "/v1/run-batches", Submit, Tenant),
    ("GET", "/v1/runs", Read, Tenant),
    ("POST", "/v1/runs", Submit, Tenant),
    ("GET", "/v1/runs/stream", Read, Tenant),
    ("GET", "/v1/runs/{run}", Read, Tenant),
    ("POST", "/v1/runs/{run}/cancel", Steer, Tenant),
    ("GET", "/v1/runs/{run}/events", Read, Tenant),
    ("GET", "/v1/runs/{run}/events/stream", Read, Tenant),
    ("POST", "/v1/runs/{run}/retry", Steer, Tenant),
    ("POST", "/v1/runs/{run}/signals", Submit, Tenant),
    ("GET", "/v1/runs/{run}/tasks", Read, Tenant),
    ("GET", "/v1/runs/{run}/tasks/{task}", Read, Tenant),
    ("GET", "/v1/runs/{run}/tasks/{task}/steps", Read, Tenant),
    ("GET", "/v1/runs/{run}/tasks/{task}/why", Read, Tenant),
    ("POST", "/v1/runs/{run}/undo", Steer, Tenant),
    ("GET", "/v1/runs/{run}/wait", Read, Tenant),
    ("GET", "/v1/runs/{run}/why", Read, Tenant),
    ("GET", "/v1/schedules", Read, Tenant),
    ("DELETE", "/v1/schedules/{schedule}", Steer, Tenant),
    ("GET", "/v1/schedules/{schedule}", Read, Tenant),
    ("PUT", "/v1/schedules/{schedule}", Submit, Tenant),
    ("POST", "/v1/schedules/{schedule}/backfill", Steer, Tenant),
    ("GET", "/v1/schedules/{schedule}/fires", Read, Tenant),
    ("POST", "/v1/schedules/{schedule}/pause", Steer, Tenant),
    ("POST", "/v1/schedules/{schedule}/resume", Steer, Tenant),
    ("POST", "/v1/schedules/{schedule}/trigger", Steer, Tenant),
    ("POST", "/v1/signals", Submit, Tenant),
    ("PUT", "/v1/tenants/{tenant}/weight", Administer, All),
    ("GET", "/v1/tokens", Administer, Tenant),
    ("POST", "/v1/tokens", Administer, Tenant),
    ("DELETE", "/v1/tokens/{token}", Administer, Tenant),
    ("GET", "/v1/workers", Read, All),
    ("POST", "/v1/workers", Work, Tenant),
    ("GET", "/v1/workers/stream", Read, All),
    ("DELETE", "/v1/workers/{worker}", Work, Tenant),
    ("POST", "/v1/workers/{worker}/checkpoint", Work, Tenant),
    ("POST", "/v1/workers/{worker}/claim", Work, Tenant),
    ("POST", "/v1/workers/{worker}/count-children", Work, Tenant),
    ("POST", "/v1/workers/{worker}/drain", Work, Tenant),
    ("POST", "/v1/workers/{worker}/finish", Work, Tenant),
    ("POST", "/v1/workers/{worker}/heartbeat", Work, Tenant),
    ("POST", "/v1/workers/{worker}/list-children", Work, Tenant),
    ("POST", "/v1/workers/{worker}/read-undo", Work, Tenant),
    ("POST", "/v1/workers/{worker}/record", Work, Tenant),
    ("POST", "/v1/workers/{worker}/release", Work, Tenant),
    ("POST", "/v1/workers/{worker}/start-children", Work, Tenant),
    ("POST", "/v1/workers/{worker}/take-signals", Work, Tenant),
    ("GET", "/v1/workflows", Read, Tenant),
];

/// Every call of gRPC: its path and what it needs.
pub const GRPC: &[(&str, Right, Reach)] = &[
    ("/windlass.v1.ClientService/RegisterWorkflow", Work, Tenant),
    ("/windlass.v1.ClientService/StartRuns", Submit, Tenant),
    ("/windlass.v1.ClientService/GetRun", Read, Tenant),
    ("/windlass.v1.ClientService/WaitRun", Read, Tenant),
    ("/windlass.v1.ClientService/WatchRuns", Read, Tenant),
    ("/windlass.v1.ClientService/ListRuns", Read, Tenant),
    ("/windlass.v1.ClientService/ListTasks", Read, Tenant),
    ("/windlass.v1.ClientService/GetTask", Read, Tenant),
    ("/windlass.v1.ClientService/ListSteps", Read, Tenant),
    ("/windlass.v1.ClientService/ListEvents", Read, Tenant),
    ("/windlass.v1.ClientService/Why", Read, Tenant),
    ("/windlass.v1.ClientService/CancelRun", Steer, Tenant),
    ("/windlass.v1.ClientService/RetryRun", Steer, Tenant),
    ("/windlass.v1.ClientService/UndoRun", Steer, Tenant),
    ("/windlass.v1.ClientService/SignalRun", Submit, Tenant),
    ("/windlass.v1.ClientService/SignalKey", Submit, Tenant),
    ("/windlass.v1.ClientService/ListDeadLetters", Read, Tenant),
    ("/windlass.v1.ClientService/RedriveDeadLetters", Steer, Tenant),
    ("/windlass.v1.ClientService/DiscardDeadLetters", Steer, Tenant),
    ("/windlass.v1.ClientService/WriteLog", Steer, Tenant),
    ("/windlass.v1.ClientService/ListLog", Read, Tenant),
    ("/windlass.v1.ClientService/CreateToken", Administer, Tenant),
    ("/windlass.v1.ClientService/ListTokens", Administer, Tenant),
    ("/windlass.v1.ClientService/RevokeToken", Administer, Tenant),
    ("/windlass.v1.ClientService/SetRetention", Administer, All),
    ("/windlass.v1.ClientService/ClearRetention", Administer, All),
    ("/windlass.v1.ClientService/ListRetention", Read, All),
    ("/windlass.v1.ClientService/SetQuota", Administer, All),
    ("/windlass.v1.ClientService/ClearQuota", Administer, All),
    ("/windlass.v1.ClientService/ListQuotas", Read, All),
    ("/windlass.v1.ClientService/GetUsage", Read, Tenant),
    ("/windlass.v1.ClientService/GetArchivedRun", Read, Tenant),
    ("/windlass.v1.ClientService/SetWeight", Administer, All),
    ("/windlass.v1.ClientService/ListWorkflows", Read, Tenant),
    ("/windlass.v1.ClientService/ListWorkers", Read, All),
    ("/windlass.v1.ClientService/ListLeaders", Read, All),
    ("/windlass.v1.ClientService/ListQueues", Read, All),
    ("/windlass.v1.ClientService/GetTime", Read, Tenant),
    ("/windlass.v1.ClientService/PutSchedule", Submit, Tenant),
    ("/windlass.v1.ClientService/GetSchedule", Read, Tenant),
    ("/windlass.v1.ClientService/ListSchedules", Read, Tenant),
    ("/windlass.v1.ClientService/PauseSchedule", Steer, Tenant),
    ("/windlass.v1.ClientService/ResumeSchedule", Steer, Tenant),
    ("/windlass.v1.ClientService/DeleteSchedule", Steer, Tenant),
    ("/windlass.v1.ClientService/DisableSchedules", Submit, Tenant),
    ("/windlass.v1.ClientService/TriggerSchedule", Steer, Tenant),
    ("/windlass.v1.ClientService/BackfillSchedule", Steer, Tenant),
    ("/windlass.v1.ClientService/ListFires", Read, Tenant),
    ("/windlass.v1.ClientService/ClaimDuties", Work, All),
    ("/windlass.v1.ClientService/RenewDuties", Work, All),
    ("/windlass.v1.ClientService/EndDuty", Work, All),
    ("/windlass.v1.ClientService/ListDuties", Read, All),
    ("/windlass.v1.ClientService/ForgetDuty", Steer, All),
    ("/windlass.v1.WorkerService/Work", Work, Tenant),
    ("/grpc.health.v1.Health/Check", Open, Tenant),
    ("/grpc.health.v1.Health/Watch", Open, Tenant),
];

/// What a request needs, by the path that it was matched to; none if it is not listed.
pub(crate) fn of_http(method: &Method, path: &str) -> Option<Need> {
    // What answers to GET answers to HEAD, without its body.
    let method = if *method == Method::HEAD { "GET" } else { method.as_str() };
    let found = HTTP.iter().find(|(its, at, _, _)| *its == method && *at == path);
    found.map(|(_, _, right, reach)| Need { right: *right, reach: *reach })
}

/// What a call of gRPC needs; none if it is not listed.
pub(crate) fn of_grpc(path: &str) -> Option<Need> {
    let found = GRPC.iter().find(|(at, _, _)| *at == path);
    found.map(|(_, right, reach)| Need { right: *right, reach: *reach })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_is_never_enough_to_change_anything() {
        let viewer = Roles::from(Role::Viewer);
        let metrics = Roles::from(Role::Metrics);
        for right in [Submit, Work, Steer, Administer] {
            assert!(!right.is_of(viewer) && !right.is_of(metrics), "{right:?}");
        }
        for (method, path, right, _) in HTTP {
            assert!(*method == "GET" || !right.is_of(viewer), "{method} {path}");
        }
    }

    #[test]
    fn each_role_has_what_it_is_for() {
        let rights = |role| {
            [Open, Measure, Read, Submit, Work, Steer, Administer]
                .map(|it| it.is_of(Roles::from(role)))
        };
        let metrics = [true, true, false, false, false, false, false];
        assert_eq!(rights(Role::Metrics), metrics);
        assert_eq!(rights(Role::Viewer), [true, true, true, false, false, false, false]);
        assert_eq!(rights(Role::Worker), [true, true, true, true, true, false, false]);
        assert_eq!(rights(Role::Operator), [true, true, true, true, false, true, false]);
        assert_eq!(rights(Role::Admin), [true; 7]);
        let both = Roles::of([Role::Worker, Role::Operator]).unwrap();
        assert!(Work.is_of(both) && Steer.is_of(both) && !Administer.is_of(both));
        assert_eq!(Steer.words(), "operator or admin");
    }
}
