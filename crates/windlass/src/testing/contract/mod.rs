//! One set of cases that every store must pass.
//!
//! A case is a function of a fresh [`Subject`]: a store and the hand on its
//! clock. After each case every run it started is audited: its history must be a
//! chain of legal moves, and its counters must equal what they count. The list of
//! cases exists once, in [`store_contract`](crate::store_contract), so a store is
//! held to all of them or does not compile its tests:
//!
//! ```ignore
//! async fn memory() -> MemorySubject { /* a fresh store on a virtual clock */ }
//!
//! windlass::store_contract!(memory);
//! ```
//!
//! The cases are written against the doc comments alone. Where those leave a
//! choice, such as what becomes of a worker whose lease ran out before anyone
//! looked, a case accepts every answer that loses nothing.
//!
//! The suite does not test what only one store has, such as plans of statements
//! or the loss of a connection.

mod abandons;
mod bench;
mod cancels;
mod cascades;
mod checkpoints;
mod children;
mod claims;
mod continues;
mod dead;
mod deadlines;
mod duties;
mod fairness;
mod finishes;
mod keys;
mod lanes;
mod leaders;
mod leases;
mod lists;
mod macros;
mod meters;
mod onward;
mod owners;
mod parties;
mod queues;
mod quotas;
mod registers;
mod releases;
mod retention;
mod retries;
mod schedules;
#[cfg(feature = "scoped")]
mod scoped;
mod starts;
mod steps;
mod timers;
mod tokens;
mod traces;
mod turns;
mod undo;
mod why;
mod workers;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::store::Store;

/// A store under test, and the hand on its clock.
///
/// The clock stands still unless it is advanced: cases look at the last
/// microsecond before something is due.
#[async_trait]
pub trait Subject: Send + Sync {
    /// The store, without any run, worker or definition in it.
    fn store(&self) -> Arc<dyn Store>;

    /// Lets this much time pass.
    async fn advance(&self, by: Duration);

    /// Looks at the store from within, if that can be done, after each case; answers what
    /// is wrong with it.
    async fn audit(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Makes one test of every case of the contract.
///
/// `$make` is an `async fn` or closure without arguments that gives a fresh
/// [`Subject`](crate::testing::contract::Subject). The calling crate needs tokio
/// with `macros` and `rt`.
#[macro_export]
macro_rules! store_contract {
    ($make:expr) => {
        $crate::store_contract_cases! { store_contract_tests [$make] }
        $crate::schedule_contract_cases! { store_contract_tests [$make] }
        $crate::duty_contract_cases! { store_contract_tests [$make] }
        $crate::access_contract_cases! { store_contract_tests [$make] }
        $crate::worker_contract_cases! { store_contract_tests [$make] }
    };
}

/// The list of cases, handed to another macro.
#[doc(hidden)]
#[macro_export]
macro_rules! store_contract_cases {
    ($to:ident [$($argument:tt)*]) => {
        $crate::$to! {
            [$($argument)*]
            registers {
                the_same_definition_can_be_registered_again
                other_policies_hold_for_runs_started_from_then_on
                another_length_of_a_sleep_holds_for_runs_started_from_then_on
                another_shape_of_the_same_version_is_a_conflict
                versions_have_shapes_of_their_own
                the_largest_version_is_served_as_any_other
                workflows_are_listed_by_name_and_newest_version_first
                a_workflow_is_listed_as_it_holds_for_new_runs
            }
            starts {
                a_new_run_has_all_its_tasks_and_its_roots_are_ready
                a_run_is_recorded_as_it_was_asked_for
                an_id_that_is_there_answers_with_its_run
                an_id_with_another_workflow_tenant_or_input_is_a_conflict
                a_key_that_is_there_answers_with_the_run_it_names
                a_key_with_another_input_is_a_conflict
                a_key_belongs_to_one_tenant_and_one_workflow
                one_key_twice_in_a_batch_is_one_run
                one_id_twice_in_a_batch_is_one_run
                an_id_is_free_for_the_next_of_a_batch_if_a_key_answered_for_the_first
                a_start_that_is_not_found_leaves_its_id_and_key_to_the_next_of_a_batch
                starts_that_race_for_a_key_make_one_run
                an_unknown_workflow_or_version_is_not_found
                a_bad_start_does_not_spoil_its_batch
                a_delayed_run_waits_with_its_roots_only
                a_repeated_delayed_start_keeps_the_first_time
                metadata_has_a_limit
                metadata_may_have_every_character_but_nul
                an_input_has_a_limit
                a_batch_of_starts_has_a_limit
                an_empty_batch_has_an_empty_answer
                a_run_of_a_large_workflow_starts_whole
            }
            claims {
                the_larger_priority_goes_first
                priorities_hold_among_many_workflows
                a_tasks_priority_is_relative_to_its_runs
                priorities_beyond_the_limit_are_one_route
                a_tenants_tasks_of_one_priority_go_oldest_first
                priority_goes_before_fairness_and_fairness_before_age
                a_poll_finds_what_there_is_and_uses_its_number
                only_listed_queues_are_served
                each_queue_keeps_its_order_when_several_are_served
                work_without_a_handler_is_left_alone
                a_claim_gives_no_more_than_its_limit
                two_claimers_never_share_a_task
                fence_and_attempt_grow_by_one_with_each_claim
                a_claim_carries_the_facts_of_run_and_task
                parents_ends_come_sorted_by_index_with_their_outputs
                a_sleep_succeeds_without_an_output
                an_on_failure_task_is_told_what_failed
                only_ready_tasks_can_be_claimed
                a_worker_that_is_not_alive_cannot_claim
                a_worker_whose_lease_ran_out_is_given_nothing
                a_claim_that_comes_twice_gives_nothing_the_second_time
                a_claim_that_arrives_after_it_was_given_up_gives_nothing
                a_worker_is_given_no_more_tasks_than_it_has_free_slots
                a_finish_frees_a_slot_for_the_claim_it_carries
                claims_of_several_workers_keep_the_slots_of_each
                a_claim_beyond_what_the_worker_joined_with_is_a_conflict
                a_claim_for_an_unregistered_workflow_is_not_found
            }
            finishes {
                a_success_records_its_output_and_lets_the_children_run
                an_output_over_the_limit_is_refused_and_spoils_nothing
                a_failure_is_recorded_and_fails_the_run
                a_retry_waits_for_its_time_and_is_another_attempt
                a_retry_without_a_pause_can_be_claimed_after_the_next_sweep
                a_retry_after_the_last_attempt_is_a_failure
                a_task_that_skips_itself_skips_what_needs_its_success
                a_stale_fence_cannot_finish_a_task
                a_stale_fence_cannot_release_a_task
                a_fence_from_the_future_is_refused
                a_repeated_finish_is_accepted_already_and_has_no_second_effect
                a_repeated_finish_cannot_change_its_mind
                a_retry_repeated_after_the_next_claim_has_no_effect
                a_finish_repeated_within_its_batch_counts_once
                a_task_that_does_not_exist_is_unknown
                a_task_nobody_claimed_cannot_be_finished
                a_batch_is_judged_one_by_one_in_its_order
                the_last_two_siblings_in_one_batch_end_the_run
                the_last_two_siblings_finished_at_once_end_the_run
                a_batch_of_completions_has_a_limit
                a_finish_counts_while_nobody_took_the_task_away
            }
            onward {
                what_follows_a_task_comes_with_the_answer_to_it
                where_nothing_becomes_ready_nothing_is_claimed
                what_stands_before_it_is_claimed_before_it
                completions_count_where_the_claim_does_not
                one_that_comes_twice_finishes_and_claims_once
                what_a_refused_completion_would_have_led_to_is_not_claimed
                a_lease_begins_with_what_follows_if_nothing_else_is_held
                a_worker_that_is_late_is_given_nothing_more
            }
            owners {
                a_worker_for_one_tenant_owns_no_keys_of_others
                a_key_of_a_tenant_has_one_owner_of_each_kind
                tasks_with_one_key_go_to_the_same_worker
                who_asks_with_others_is_given_its_own_keys
                a_newcomer_takes_keys_over_and_nobody_else_does
                who_leaves_drains_or_is_not_heard_of_owns_nothing
                a_worker_without_tasks_keeps_its_keys_with_heartbeats
                who_does_not_serve_a_workflow_owns_none_of_its_keys
                limits_and_order_hold_while_keys_move
                what_was_claimed_goes_back_to_whoever_owns_it_then
                why_a_task_is_not_claimed_names_the_owner_of_its_key
                a_claim_gives_what_one_key_has_among_many
            }
            lanes {
                an_id_that_waits_in_a_lane_is_refused_for_another_start
                no_more_tasks_with_one_key_are_under_way_than_slots
                who_waits_in_a_lane_goes_on_in_the_order_of_coming
                a_retry_keeps_its_slot_and_its_place
                a_slot_is_free_when_its_task_fails
                a_slot_is_free_when_its_run_is_cancelled
                who_waits_in_a_lane_can_be_cancelled
                a_lost_worker_keeps_the_slots_of_its_tasks
                a_slot_is_free_when_no_attempt_is_left_after_a_lost_worker
                a_task_handed_back_keeps_its_slot
                a_parked_function_keeps_its_slot
                a_limited_function_whose_child_ends_when_it_is_due_goes_on_once
                a_slot_is_free_when_nobody_claims_its_task_in_time
                tenants_have_lanes_of_their_own
                a_limit_across_tenants_is_shared
                a_limit_of_one_name_is_shared_by_workflows
                what_has_no_key_is_not_limited
                a_task_takes_slots_in_all_its_lanes
                tasks_with_several_limits_never_wait_for_each_other
                who_finds_a_lane_full_is_skipped_if_it_says_so
                a_delayed_task_takes_its_slot_when_it_is_due
                a_child_of_a_task_takes_its_slot_when_its_turn_comes
                what_is_let_go_on_comes_with_the_answer_to_what_ended
                a_retried_run_takes_its_slot_again
                a_key_that_cannot_be_one_is_refused_and_spoils_nothing
                a_batch_of_starts_takes_slots_in_its_order
                other_slots_hold_for_runs_started_from_then_on
                many_tasks_of_one_run_share_a_lane
            }
            meters {
                a_rate_lets_tasks_become_ready_one_after_the_other
                a_burst_lets_several_begin_at_once
                who_waits_for_a_token_and_is_cancelled_takes_none
                each_attempt_takes_a_token
                what_slept_needs_no_token
                a_rate_that_skips_drops_what_comes_too_soon
                a_task_waits_for_its_slot_before_it_takes_a_token
                a_debounce_lets_the_last_go_on_and_cancels_the_others
                a_debounce_puts_off_no_longer_than_it_may
                what_was_put_off_never_runs_though_its_time_has_come
                whose_time_has_come_goes_on_though_someone_comes_before_the_sweep
                a_newcomer_takes_the_place_of_the_oldest
                a_run_whose_place_was_taken_may_end_before_it_is_cancelled
                a_free_slot_is_not_for_who_lost_its_place_while_it_waited
                of_many_newcomers_the_last_ones_stay
                who_is_skipped_and_who_waits_do_not_wait_for_each_other
                a_breaker_holds_tasks_lets_one_try_and_then_all
                a_retry_behind_an_open_breaker_waits
                a_task_behind_an_open_breaker_says_that_nobody_promotes
                who_tries_for_a_breaker_and_is_cancelled_leaves_it_to_the_next
                a_failed_task_halts_its_stream_until_its_run_is_retried
                a_retried_task_that_waits_for_others_halts_nothing
                a_signal_does_not_wake_who_waits_for_a_token
                what_a_lane_remembers_is_forgotten_in_time
                a_task_waits_for_time_to_pass_in_a_lane_and_says_how_long
                many_who_wait_for_tokens_are_cancelled_at_once
                who_goes_from_one_lane_to_the_next_waits_there_without_a_time
                the_next_attempt_of_a_throttled_task_waits
                a_halted_slot_is_free_when_its_run_is_cancelled
                a_signal_does_not_wake_who_waits_for_its_slot_again
            }
            why {
                nobody_can_be_asked_about_what_is_not_there
                a_task_waits_for_its_parents_by_name
                a_task_waits_for_its_time_and_says_what_for
                a_timer_without_a_leader_says_so
                a_function_waits_for_signals_times_and_children
                a_sleeping_function_says_which_call_sleeps
                a_task_waits_for_a_slot_and_says_who_has_it
                a_ready_task_says_what_stands_before_it
                what_is_counted_stops_at_its_limit
                a_ready_task_says_what_the_live_workers_lack
                a_ready_task_whose_workers_are_busy_or_end_says_so
                whoever_is_said_to_serve_a_task_can_claim_it_and_nobody_else_can
                a_running_task_says_whose_it_is_and_for_how_long
                what_has_ended_says_how
                of_a_large_run_the_first_tasks_are_told
            }
            dead {
                a_task_that_failed_for_good_is_a_dead_letter
                whoever_fails_is_a_dead_letter_of_its_own
                a_lost_worker_with_no_attempt_left_leaves_a_dead_letter
                a_task_that_nobody_claims_in_time_is_a_dead_letter
                a_dead_letter_names_the_lanes_of_its_task
                a_run_that_is_cancelled_has_no_dead_letters
                dead_letters_are_found_by_each_field_and_by_all
                pages_of_dead_letters_have_neither_gaps_nor_repetitions
                a_redriven_run_goes_on_with_its_next_round
                a_redrive_that_is_repeated_answers_the_same
                batches_of_a_redrive_take_the_oldest_first
                a_redrive_takes_the_dead_letters_that_its_filter_lists
                redriven_runs_begin_at_their_pace
                what_cannot_be_redriven_is_refused_and_spoils_nothing
                a_discarded_dead_letter_is_gone_and_its_run_stays_failed
                a_halted_stream_goes_on_when_its_dead_letter_is_discarded
                a_redriven_task_takes_a_token_though_it_kept_its_slot
                a_breaker_does_not_wait_for_a_dead_letter
                dead_letters_of_a_run_that_goes_on_are_not_discarded
                a_batch_of_dead_letters_has_a_limit
                what_operators_do_is_written_down
                the_log_of_a_run_shows_a_tenant_its_own_lines
            }
            retention {
                nothing_goes_unless_a_rule_says_so
                a_run_goes_when_it_has_been_over_for_its_time
                rules_are_by_state_and_by_workflow
                rules_have_limits
                a_sweep_of_old_runs_has_a_limit
                a_failed_run_stays_while_it_has_dead_letters
                a_run_that_is_retried_is_not_over
                nothing_is_left_of_a_run_that_is_gone
                a_child_stays_for_as_long_as_its_parent
                a_run_that_halts_its_stream_stays
                a_cancelled_run_stays_until_its_children_are_cancelled
                what_is_undone_and_what_undoes_go_in_their_order
                a_key_outlives_its_run_as_its_rule_says
                kept_keys_of_one_name_answer_each_to_its_own_tenant
                a_key_goes_with_its_run_if_nothing_is_said
                what_goes_to_the_archive_is_told_there
            }
            releases {
                a_release_gives_the_attempt_back
                a_released_task_keeps_its_place
                a_deferred_release_waits_for_its_time
                a_repeated_release_is_accepted_already
                a_released_task_cannot_be_finished_by_who_released_it
                a_finished_task_cannot_be_released
            }
            checkpoints {
                a_checkpoint_is_handed_to_the_next_attempt
                a_checkpoint_outlives_the_worker_that_wrote_it
                a_checkpoint_outlives_a_release
                a_later_checkpoint_takes_the_place_of_an_earlier_one
                a_checkpoint_that_comes_late_does_not_replace_a_newer_one
                a_checkpoint_of_the_same_number_replaces_nothing
                a_stale_fence_cannot_write_a_checkpoint
                a_checkpoint_of_a_task_nobody_holds_is_refused
                a_checkpoint_over_the_limit_is_refused_and_spoils_nothing
                a_checkpoint_goes_when_its_task_ends
                a_checkpoint_belongs_to_one_task
                a_batch_of_checkpoints_has_a_limit
            }
            steps {
                what_was_recorded_is_handed_to_the_next_attempt
                a_result_that_is_recorded_never_changes
                a_call_that_waits_gets_its_result_later
                a_wait_that_is_recorded_twice_ends_when_it_was_to_end
                a_stale_fence_cannot_record_a_step
                recordings_of_many_functions_are_judged_alone
                a_step_that_makes_no_sense_takes_nobodys_place
                a_call_may_be_recorded_twice_by_one_batch
                steps_are_listed_in_pages
                a_function_that_sleeps_is_claimed_again_when_it_is_due
                parking_twice_is_accepted_already
                a_wait_that_was_recorded_before_counts_when_it_is_said_to
                a_parking_that_waits_for_nothing_is_refused
                a_signal_wakes_the_function_that_waits_for_it
                a_wait_without_a_timeout_is_never_due
                a_wait_ends_with_its_timeout
                a_function_does_not_wait_for_a_signal_that_is_there
                signals_are_taken_in_the_order_in_which_they_were_sent
                a_signal_to_a_run_that_ended_or_never_was_is_an_error
                a_run_keeps_so_many_signals_that_nobody_took
                a_function_that_failed_goes_on_from_its_last_failed_step
                a_function_that_failed_by_itself_keeps_all_its_steps
                a_call_that_nobody_waits_for_any_more_is_forgotten
                a_cancelled_function_waits_no_more
            }
            keys {
                a_signal_to_a_key_lets_go_on_who_waits_for_it
                signals_to_a_key_are_kept_and_taken_in_their_order
                a_question_for_a_signal_that_is_heard_late_takes_nothing
                keys_names_and_tenants_are_apart
                who_looked_before_a_signal_to_a_key_came_is_not_parked
                each_signal_to_a_key_goes_to_one_of_those_who_wait
                a_signal_to_a_key_is_not_lost_with_who_was_let_go_on_for_it
                who_waits_no_more_is_not_told
                the_first_of_several_keys_lets_a_function_go_on
                a_signal_to_a_key_that_is_sent_again_is_sent_once
                a_signal_to_a_key_is_kept_for_its_time
                a_signal_behind_one_that_has_expired_is_taken_once
                a_mailbox_keeps_so_many_signals_that_nobody_took
                a_signal_to_a_key_has_limits
                a_call_that_waits_for_a_key_takes_no_other_signal
                a_call_that_waits_for_a_key_cannot_end_with_another
                a_signal_to_a_run_does_not_wake_who_waits_for_a_key
                a_call_that_is_named_twice_when_it_is_parked_waits_once
                a_limited_function_that_is_told_and_due_at_once_goes_on_once
            }
            deadlines {
                a_run_that_takes_too_long_is_cancelled_and_says_why
                a_run_that_ended_in_time_is_left_alone
                what_is_due_when_its_run_has_taken_too_long_is_not_claimed
                of_deadlines_that_pass_together_that_of_the_run_comes_first
                a_retry_gives_a_run_its_time_again
                a_task_that_nobody_claims_in_time_fails_with_all_that_follows
                a_task_that_was_claimed_in_time_is_left_alone
                a_task_that_comes_back_to_its_queue_has_its_time_again
                a_task_that_is_handed_back_has_its_time_again
            }
            continues {
                a_function_that_begins_afresh_has_its_new_input_and_knows_nothing_else
                a_beginning_afresh_is_applied_once_and_only_under_the_fence
                only_a_workflow_of_one_task_can_begin_afresh
                the_input_of_a_function_that_began_afresh_outlives_failures_and_rests
                a_start_is_known_again_after_its_run_began_afresh
            }
            traces {
                every_attempt_is_told_the_trace_of_its_run
                the_trace_of_a_start_that_is_repeated_is_that_of_the_first
                a_trace_that_makes_no_sense_is_refused_with_its_place
                a_child_belongs_to_the_trace_that_it_was_given
                what_undoes_a_run_belongs_to_its_trace
            }
            undo {
                a_failed_run_with_steps_that_can_be_undone_is_undone
                a_cancelled_run_is_undone_and_waits_for_the_worker_that_was_at_work
                what_undoes_a_child_can_be_retried
                what_has_nothing_to_undo_is_not_undone
                a_run_that_failed_because_its_code_is_another_is_not_undone_by_itself
                a_lost_worker_with_no_attempt_left_lets_the_run_be_undone
                a_child_that_is_cancelled_with_its_parent_is_undone
                anyone_may_ask_to_undo_a_run_that_has_ended
                a_run_that_was_undone_cannot_be_retried
                what_undoes_is_told_the_attempt_that_a_task_ended_with
                an_undoing_that_was_given_up_is_not_begun_again
                what_undoes_waits_where_the_newest_definition_says
                only_the_holder_of_the_lease_is_told_what_to_undo
                what_undoes_is_told_the_tasks_that_have_something_to_undo
            }
            children {
                a_child_is_started_once_however_often_it_is_asked_for
                a_run_has_one_parent_the_first
                a_stale_fence_cannot_start_a_child
                a_function_goes_on_when_enough_of_its_children_have_ended
                a_function_does_not_wait_for_children_that_have_ended
                the_end_of_a_child_while_its_parent_runs_is_not_lost
                cancelling_a_run_cancels_its_children_and_theirs
                a_child_that_is_due_when_it_is_cancelled_is_not_claimed
                a_retried_function_starts_its_children_anew
                a_retry_keeps_the_children_of_tasks_that_stay
                a_child_that_is_retried_is_waited_for_again
                a_child_that_is_retried_before_its_end_is_heard_of_has_not_ended
                many_children_are_started_and_counted
            }
            leases {
                a_lease_is_not_reaped_before_it_ends
                a_reaped_task_tells_whose_lease_ended_and_when
                a_heartbeat_keeps_every_task_of_its_worker
                a_heartbeat_keeps_nobody_elses_tasks
                each_worker_has_the_lease_it_asked_for
                neither_a_claim_nor_a_finish_keeps_a_lease
                a_lease_begins_anew_when_a_worker_without_tasks_claims
                a_dead_worker_learns_it_from_its_heartbeat
                a_worker_without_tasks_need_not_say_anything
                a_first_heartbeat_that_never_came_does_not_keep_a_lease
                a_worker_that_joins_again_while_it_lives_is_fine
                a_repeated_join_does_not_renew_a_lease
                a_worker_makes_its_workflows_known_when_it_joins
                a_dead_id_never_lives_again
                a_worker_that_cannot_join_makes_nothing_known
                a_zombie_cannot_finish_what_was_reaped
                a_task_whose_last_attempt_is_lost_fails_with_all_that_follows
                a_task_that_must_not_be_begun_twice_fails_with_its_worker
                the_next_attempt_is_told_why_the_last_one_failed
                a_visibility_timeout_ends_a_lease_whatever_its_worker_says
                a_visibility_timeout_counts_from_each_claim_and_for_its_task_alone
                a_lost_last_task_ends_its_run
                tasks_of_a_lost_answer_go_back_without_costing_an_attempt
                tasks_of_a_claim_that_is_not_settled_stay
                a_heartbeat_names_what_is_lost_and_why
                a_heartbeat_with_a_stale_fence_holds_nothing
                a_heartbeat_may_name_a_task_by_an_old_fence_as_well
                a_progress_note_is_kept_and_one_with_a_stale_fence_is_not
                a_note_on_a_task_that_is_given_up_with_it_is_not_kept
                a_progress_note_over_the_limit_is_dropped
                a_worker_that_leaves_gives_its_tasks_back_at_the_cost_of_an_attempt
                a_reaper_goes_on_where_its_batch_ended
                a_reaper_counts_lost_workers_and_visibility_timeouts_together
                a_worker_that_was_silent_for_hours_loses_its_tasks
                nothing_is_due_when_no_task_is_held
            }
            queues {
                queues_count_what_comes_and_goes
                queues_are_listed_by_name_and_priority
                the_oldest_task_of_a_queue_may_be_of_any_tenant
                the_oldest_task_of_a_queue_may_stand_behind_newer_ones
            }
            leaders {
                a_duty_nobody_ever_did_is_led_by_nobody
                the_first_candidate_leads_and_the_second_does_not
                a_leader_that_renews_keeps_its_term
                no_duty_is_done_without_its_mandate
                a_leader_that_is_not_heard_of_is_replaced
                a_late_leader_that_nobody_replaced_goes_on
                a_leader_that_was_replaced_changes_nothing
                a_duty_that_was_given_up_is_free_at_once
                a_leader_that_rotates_is_replaced_when_its_time_is_over
                a_leader_that_rotates_goes_on_while_it_is_alone
                whoever_comes_back_begins_another_term
                candidates_that_race_make_one_leader
                what_was_done_is_added_up_over_terms
                whoever_leads_is_told_when_something_is_due
            }
            timers {
                a_backoff_is_never_early
                a_delay_is_never_early
                a_sleep_ends_on_time_and_lets_its_children_run
                a_sleep_that_is_the_last_task_ends_its_run
                sleeps_in_a_row_take_the_sum_of_their_times
                a_sleep_of_no_time_ends_with_the_next_sweep
                a_delayed_sleep_begins_after_the_delay
                a_timer_that_is_late_fires_once
                a_sweep_goes_on_where_its_batch_ended
                a_sweep_takes_the_earliest_times_first
            }
            cascades {
                each_trigger_judges_its_parents_as_it_says
                a_child_waits_for_its_last_parent_even_if_one_failed
                a_failure_skips_a_long_chain_at_once
                a_diamond_with_one_failed_side_ends
                a_skipped_sleep_never_wakes
                a_sleep_can_be_a_consequence_of_a_failure
                an_on_failure_task_is_skipped_when_nothing_failed
                an_on_failure_task_runs_after_everything_else_ended
                an_on_failure_task_that_fails_leaves_the_run_failed
                an_on_failure_task_runs_when_the_last_worker_was_lost
                a_run_in_which_all_is_skipped_has_succeeded
                a_parent_and_its_sibling_in_one_batch_unblock_a_join_once
            }
            cancels {
                a_cancel_ends_tasks_in_every_state
                a_cancelled_run_stays_cancelled
                a_run_that_ended_otherwise_cannot_be_cancelled
                an_unknown_run_cannot_be_cancelled
                a_cancelled_task_cannot_be_claimed
                cancelled_timers_do_not_fire
                a_worker_is_told_that_its_run_was_cancelled
                a_finish_that_was_accepted_stays_so_when_its_run_is_cancelled
                a_cancelled_task_is_not_reaped
                a_worker_that_leaves_after_a_cancel_changes_nothing
                a_cancelled_failure_does_not_call_the_on_failure_task
            }
            retries {
                a_retry_runs_what_failed_and_what_depends_on_it
                a_new_round_counts_attempts_anew_and_fences_on
                a_repeated_retry_answers_the_same_round
                a_round_that_has_not_been_cannot_be_retried
                only_a_failed_run_can_be_retried
                a_running_round_cannot_be_retried
                a_write_of_an_earlier_round_has_no_effect
                a_retried_task_has_no_progress_of_the_round_before
                a_sleep_behind_a_failed_task_is_slept_again
                a_retried_run_can_be_cancelled
            }
            fairness {
                tenants_of_equal_weight_take_turns
                a_newcomer_gains_nothing_from_a_worker_that_left
                tenants_take_turns_in_the_order_of_their_first_starts
                turns_are_the_same_in_batches
                a_newcomer_does_not_wait_behind_a_backlog
                a_newcomer_before_the_first_claim_does_not_wait_either
                one_run_of_many_tasks_is_one_tenants_backlog
                children_wait_for_their_turn_like_roots
                shares_follow_the_weights
                a_weight_holds_for_tasks_that_become_ready_from_then_on
                idling_earns_no_credit
                an_empty_queue_does_not_forget_the_time
                each_priority_has_a_time_of_its_own
                no_priority_waits_for_ever
                each_queue_has_a_time_of_its_own
                a_cancelled_backlog_does_not_count_against_its_tenant
                whoever_came_when_each_other_has_one_turn_between_two_of_a_tenant
                a_backlogged_tenant_is_served_within_the_bound
            }
            lists {
                runs_are_listed_newest_first
                lists_of_runs_have_no_inputs
                runs_of_one_tenant_are_listed_page_by_page
                runs_can_be_found_by_each_field_and_by_all
                pages_have_neither_gaps_nor_repetitions
                a_run_started_between_two_pages_does_not_shift_them
                a_page_has_a_limit
                what_does_not_exist_is_not_there
                a_history_is_read_from_any_point_in_pages
                nothing_comes_behind_the_largest_number
                whoever_waits_for_work_is_told_when_a_task_becomes_ready
                whoever_waits_for_time_is_told_of_an_earlier_timer
                whoever_waits_for_a_run_is_told_when_it_ends
            }
        }
    };
}

/// The cases, each named by the behaviour it checks. They panic when the store
/// behaves otherwise.
pub mod cases {
    crate::store_contract_cases! { store_contract_functions [] }
    crate::schedule_contract_cases! { store_contract_functions [] }
    crate::duty_contract_cases! { store_contract_functions [] }
    crate::access_contract_cases! { store_contract_functions [] }
    crate::worker_contract_cases! { store_contract_functions [] }
    #[cfg(feature = "scoped")]
    crate::scoped_contract_cases! { store_contract_functions [] }
}
