//! The door for clients.
//!
//! Each call is read, asked of the store and answered; nothing is decided here. What makes no
//! sense is refused with the name of the field, and the limits are those of the store.

mod operators;
mod pages;
mod programs;
mod runs;
mod tokens;
mod waiting;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};
use windlass::RunId;
use windlass::remote::MESSAGE_BYTES_MAX;
use windlass::store::{RunRecord, Store, StoreError};
use windlass::wire::status_of_error;
use windlass_proto::v1;
use windlass_proto::v1::client_service_server::{ClientService, ClientServiceServer};

use super::Refused;
use crate::identity::Identity;
use crate::quotas::Quotas;

/// What clients ask of a store.
pub(super) struct ClientApi {
    quotas: Arc<Quotas>,
    waiters: waiting::Waiters,
    stopping: CancellationToken,
}

/// Someone who was let in.
struct Caller {
    store: Arc<dyn Store>,
    quotas: Arc<Quotas>,
    identity: Identity,
}

impl Caller {
    /// A run that it may see.
    async fn run(&self, run: RunId) -> Result<RunRecord, Refused> {
        let missing = || StoreError::NotFound(format!("run {run}"));
        Ok(self.store.get_run(run).await?.ok_or_else(missing)?)
    }
}

type Answer<T> = Result<Response<T>, Status>;

impl ClientApi {
    /// What clients ask, each of the store that it may use. Calls that wait come to their end when
    /// `stopping` is cancelled.
    pub(super) fn new(quotas: Arc<Quotas>, stopping: CancellationToken) -> Self {
        ClientApi { quotas, waiters: waiting::Waiters::default(), stopping }
    }

    /// The service, with its limits.
    pub(super) fn into_service(self) -> ClientServiceServer<Self> {
        ClientServiceServer::new(self)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// Lets a call in, or not.
    fn admit<T>(&self, request: Request<T>) -> Result<(Caller, T), Status> {
        let identity = super::admit(&request)?;
        let (store, quotas) = (Arc::clone(identity.store()), Arc::clone(&self.quotas));
        Ok((Caller { store, quotas, identity }, request.into_inner()))
    }
}

fn answer<T>(answer: Result<T, Refused>) -> Answer<T> {
    answer.map(Response::new).map_err(|Refused(error)| status_of_error(error))
}

#[tonic::async_trait]
impl ClientService for ClientApi {
    async fn register_workflow(
        &self,
        request: Request<v1::RegisterWorkflowRequest>,
    ) -> Answer<v1::Done> {
        let (caller, message) = self.admit(request)?;
        answer(runs::register_workflow(&caller, message).await)
    }

    async fn start_runs(
        &self,
        request: Request<v1::StartRunsRequest>,
    ) -> Answer<v1::StartRunsReply> {
        let (caller, message) = self.admit(request)?;
        answer(runs::start_runs(&caller, message).await)
    }

    async fn get_run(&self, request: Request<v1::GetRunRequest>) -> Answer<v1::GetRunReply> {
        let (caller, message) = self.admit(request)?;
        answer(runs::get_run(&caller, message).await)
    }

    async fn wait_run(&self, request: Request<v1::WaitRunRequest>) -> Answer<v1::WaitRunReply> {
        let (caller, message) = self.admit(request)?;
        answer(self.waiters.wait_run(&caller, message, &self.stopping).await)
    }

    type WatchRunsStream = waiting::RunHints;

    async fn watch_runs(
        &self,
        request: Request<v1::WatchRunsRequest>,
    ) -> Answer<Self::WatchRunsStream> {
        let (caller, v1::WatchRunsRequest {}) = self.admit(request)?;
        let hints = waiting::watch_runs(&caller, self.stopping.clone());
        Ok(Response::new(super::until_over(caller.identity, hints)))
    }

    async fn list_runs(&self, request: Request<v1::ListRunsRequest>) -> Answer<v1::RunPage> {
        let (caller, message) = self.admit(request)?;
        answer(runs::list_runs(&caller, message).await)
    }

    async fn list_tasks(
        &self,
        request: Request<v1::ListTasksRequest>,
    ) -> Answer<v1::ListTasksReply> {
        let (caller, message) = self.admit(request)?;
        answer(runs::list_tasks(&caller, message).await)
    }

    async fn get_task(&self, request: Request<v1::GetTaskRequest>) -> Answer<v1::GetTaskReply> {
        let (caller, message) = self.admit(request)?;
        answer(runs::get_task(&caller, message).await)
    }

    async fn list_steps(
        &self,
        request: Request<v1::ListStepsRequest>,
    ) -> Answer<v1::ListStepsReply> {
        let (caller, message) = self.admit(request)?;
        answer(runs::list_steps(&caller, message).await)
    }

    async fn list_events(
        &self,
        request: Request<v1::ListEventsRequest>,
    ) -> Answer<v1::ListEventsReply> {
        let (caller, message) = self.admit(request)?;
        answer(runs::list_events(&caller, message).await)
    }

    async fn why(&self, request: Request<v1::WhyRequest>) -> Answer<v1::WhyReply> {
        let (caller, message) = self.admit(request)?;
        answer(runs::why(&caller, message).await)
    }

    async fn cancel_run(&self, request: Request<v1::CancelRunRequest>) -> Answer<v1::Done> {
        let (caller, message) = self.admit(request)?;
        answer(runs::cancel_run(&caller, message).await)
    }

    async fn retry_run(&self, request: Request<v1::RetryRunRequest>) -> Answer<v1::RetryRunReply> {
        let (caller, message) = self.admit(request)?;
        answer(runs::retry_run(&caller, message).await)
    }

    async fn undo_run(&self, request: Request<v1::UndoRunRequest>) -> Answer<v1::UndoRunReply> {
        let (caller, message) = self.admit(request)?;
        answer(runs::undo_run(&caller, message).await)
    }

    async fn signal_run(&self, request: Request<v1::SignalRunRequest>) -> Answer<v1::Done> {
        let (caller, message) = self.admit(request)?;
        answer(runs::signal_run(&caller, message).await)
    }

    async fn signal_key(&self, request: Request<v1::SignalKeyRequest>) -> Answer<v1::Done> {
        let (caller, message) = self.admit(request)?;
        answer(runs::signal_key(&caller, message).await)
    }

    async fn list_dead_letters(
        &self,
        request: Request<v1::ListDeadLettersRequest>,
    ) -> Answer<v1::DeadLetterPage> {
        let (caller, message) = self.admit(request)?;
        answer(operators::list_dead_letters(&caller, message).await)
    }

    async fn redrive_dead_letters(
        &self,
        request: Request<v1::RedriveRequest>,
    ) -> Answer<v1::RedriveReply> {
        let (caller, message) = self.admit(request)?;
        answer(operators::redrive_dead_letters(&caller, message).await)
    }

    async fn discard_dead_letters(
        &self,
        request: Request<v1::DiscardRequest>,
    ) -> Answer<v1::DiscardReply> {
        let (caller, message) = self.admit(request)?;
        answer(operators::discard_dead_letters(&caller, message).await)
    }

    async fn write_log(&self, request: Request<v1::NewLogEntry>) -> Answer<v1::Done> {
        let (_, message) = self.admit(request)?;
        answer(operators::write_log(message))
    }

    async fn list_log(&self, request: Request<v1::ListLogRequest>) -> Answer<v1::LogPage> {
        let (caller, message) = self.admit(request)?;
        answer(operators::list_log(&caller, message).await)
    }

    async fn create_token(&self, request: Request<v1::NewToken>) -> Answer<v1::TokenRecord> {
        let (caller, message) = self.admit(request)?;
        answer(tokens::create_token(&caller, message).await)
    }

    async fn list_tokens(&self, request: Request<v1::ListTokensRequest>) -> Answer<v1::TokenPage> {
        let (caller, message) = self.admit(request)?;
        answer(tokens::list_tokens(&caller, message).await)
    }

    async fn revoke_token(
        &self,
        request: Request<v1::RevokeTokenRequest>,
    ) -> Answer<v1::TokenRecord> {
        let (caller, message) = self.admit(request)?;
        answer(tokens::revoke_token(&caller, message).await)
    }

    async fn set_retention(&self, request: Request<v1::RetentionRule>) -> Answer<v1::Done> {
        let (caller, message) = self.admit(request)?;
        answer(operators::set_retention(&caller, message).await)
    }

    async fn clear_retention(
        &self,
        request: Request<v1::ClearRetentionRequest>,
    ) -> Answer<v1::ClearRetentionReply> {
        let (caller, message) = self.admit(request)?;
        answer(operators::clear_retention(&caller, message).await)
    }

    async fn list_retention(
        &self,
        request: Request<v1::ListRetentionRequest>,
    ) -> Answer<v1::ListRetentionReply> {
        let (caller, message) = self.admit(request)?;
        answer(operators::list_retention(&caller, message).await)
    }

    async fn get_archived_run(
        &self,
        request: Request<v1::GetArchivedRunRequest>,
    ) -> Answer<v1::GetArchivedRunReply> {
        let (caller, message) = self.admit(request)?;
        answer(operators::get_archived_run(&caller, message).await)
    }

    async fn set_weight(&self, request: Request<v1::SetWeightRequest>) -> Answer<v1::Done> {
        let (caller, message) = self.admit(request)?;
        answer(operators::set_weight(&caller, message).await)
    }

    async fn set_quota(&self, request: Request<v1::Quota>) -> Answer<v1::Done> {
        let (caller, message) = self.admit(request)?;
        answer(operators::set_quota(&caller, message).await)
    }

    async fn clear_quota(
        &self,
        request: Request<v1::ClearQuotaRequest>,
    ) -> Answer<v1::ClearQuotaReply> {
        let (caller, message) = self.admit(request)?;
        answer(operators::clear_quota(&caller, message).await)
    }

    async fn list_quotas(
        &self,
        request: Request<v1::ListQuotasRequest>,
    ) -> Answer<v1::ListQuotasReply> {
        let (caller, message) = self.admit(request)?;
        answer(operators::list_quotas(&caller, message).await)
    }

    async fn get_usage(&self, request: Request<v1::GetUsageRequest>) -> Answer<v1::GetUsageReply> {
        let (caller, message) = self.admit(request)?;
        answer(operators::get_usage(&caller, message).await)
    }

    async fn list_workflows(
        &self,
        request: Request<v1::ListWorkflowsRequest>,
    ) -> Answer<v1::WorkflowPage> {
        let (caller, message) = self.admit(request)?;
        answer(operators::list_workflows(&caller, message).await)
    }

    async fn list_workers(
        &self,
        request: Request<v1::ListWorkersRequest>,
    ) -> Answer<v1::WorkerPage> {
        let (caller, message) = self.admit(request)?;
        answer(operators::list_workers(&caller, message).await)
    }

    async fn list_leaders(
        &self,
        request: Request<v1::ListLeadersRequest>,
    ) -> Answer<v1::ListLeadersReply> {
        let (caller, message) = self.admit(request)?;
        answer(operators::list_leaders(&caller, message).await)
    }

    async fn list_queues(&self, request: Request<v1::ListQueuesRequest>) -> Answer<v1::QueueList> {
        let (caller, message) = self.admit(request)?;
        answer(operators::list_queues(&caller, message).await)
    }

    async fn get_time(&self, request: Request<v1::GetTimeRequest>) -> Answer<v1::GetTimeReply> {
        let (caller, message) = self.admit(request)?;
        answer(operators::get_time(&caller, message).await)
    }

    async fn put_schedule(&self, request: Request<v1::Schedule>) -> Answer<v1::ScheduleRecord> {
        let (caller, message) = self.admit(request)?;
        answer(programs::put_schedule(&caller, message).await)
    }

    async fn get_schedule(
        &self,
        request: Request<v1::GetScheduleRequest>,
    ) -> Answer<v1::GetScheduleReply> {
        let (caller, message) = self.admit(request)?;
        answer(programs::get_schedule(&caller, message).await)
    }

    async fn list_schedules(
        &self,
        request: Request<v1::ListSchedulesRequest>,
    ) -> Answer<v1::SchedulePage> {
        let (caller, message) = self.admit(request)?;
        answer(programs::list_schedules(&caller, message).await)
    }

    async fn pause_schedule(&self, request: Request<v1::PauseScheduleRequest>) -> Answer<v1::Done> {
        let (caller, message) = self.admit(request)?;
        answer(programs::pause_schedule(&caller, message).await)
    }

    async fn resume_schedule(
        &self,
        request: Request<v1::ResumeScheduleRequest>,
    ) -> Answer<v1::Done> {
        let (caller, message) = self.admit(request)?;
        answer(programs::resume_schedule(&caller, message).await)
    }

    async fn delete_schedule(
        &self,
        request: Request<v1::DeleteScheduleRequest>,
    ) -> Answer<v1::Done> {
        let (caller, message) = self.admit(request)?;
        answer(programs::delete_schedule(&caller, message).await)
    }

    async fn disable_schedules(
        &self,
        request: Request<v1::DisableSchedulesRequest>,
    ) -> Answer<v1::DisableSchedulesReply> {
        let (caller, message) = self.admit(request)?;
        answer(programs::disable_schedules(&caller, message).await)
    }

    async fn trigger_schedule(
        &self,
        request: Request<v1::TriggerScheduleRequest>,
    ) -> Answer<v1::Started> {
        let (caller, message) = self.admit(request)?;
        answer(programs::trigger_schedule(&caller, message).await)
    }

    async fn backfill_schedule(
        &self,
        request: Request<v1::BackfillScheduleRequest>,
    ) -> Answer<v1::BackfillScheduleReply> {
        let (caller, message) = self.admit(request)?;
        answer(programs::backfill_schedule(&caller, message).await)
    }

    async fn list_fires(
        &self,
        request: Request<v1::ListFiresRequest>,
    ) -> Answer<v1::ListFiresReply> {
        let (caller, message) = self.admit(request)?;
        answer(programs::list_fires(&caller, message).await)
    }

    async fn claim_duties(
        &self,
        request: Request<v1::ClaimDutiesRequest>,
    ) -> Answer<v1::ClaimDutiesReply> {
        let (caller, message) = self.admit(request)?;
        answer(programs::claim_duties(&caller, message).await)
    }

    async fn renew_duties(
        &self,
        request: Request<v1::RenewDutiesRequest>,
    ) -> Answer<v1::RenewDutiesReply> {
        let (caller, message) = self.admit(request)?;
        answer(programs::renew_duties(&caller, message).await)
    }

    async fn end_duty(&self, request: Request<v1::EndDutyRequest>) -> Answer<v1::EndDutyReply> {
        let (caller, message) = self.admit(request)?;
        answer(programs::end_duty(&caller, message).await)
    }

    async fn list_duties(
        &self,
        request: Request<v1::ListDutiesRequest>,
    ) -> Answer<v1::ListDutiesReply> {
        let (caller, message) = self.admit(request)?;
        answer(programs::list_duties(&caller, message).await)
    }

    async fn forget_duty(
        &self,
        request: Request<v1::ForgetDutyRequest>,
    ) -> Answer<v1::ForgetDutyReply> {
        let (caller, message) = self.admit(request)?;
        answer(programs::forget_duty(&caller, message).await)
    }
}
