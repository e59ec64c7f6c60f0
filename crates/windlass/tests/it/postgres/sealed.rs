//! A sealed store in PostgreSQL keeps those parts of the contract that values go through. The whole of
//! it holds of a sealed store in memory.

#![expect(clippy::unwrap_used, reason = "the tools of tests are tests as well")]

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use windlass::store::sealed::SealedStore;
use windlass::store::{Store, WorkflowFilter};
use windlass::testing::contract::Subject;
use windlass::{Ctx, ErrorKind, Keyring, Limit, Payload, TaskError, Windlass, Workflow};

use super::{Postgres, postgres};

struct Sealed {
    store: Arc<SealedStore>,
    within: Postgres,
}

#[async_trait::async_trait]
impl Subject for Sealed {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn advance(&self, by: Duration) {
        self.within.advance(by).await;
    }

    async fn audit(&self) -> Vec<String> {
        self.within.audit().await
    }
}

fn keys() -> Keyring {
    Keyring::parse(&Keyring::fresh_line("k1").unwrap()).expect("the line is a key").required(true)
}

async fn sealed() -> Sealed {
    let within = postgres().await;
    let store = SealedStore::new(within.store.clone(), Arc::new(keys()));
    Sealed { store: Arc::new(store), within }
}

windlass::store_contract_tests! {
    [sealed]
    starts {
        a_run_is_recorded_as_it_was_asked_for
        an_id_that_is_there_answers_with_its_run
        an_id_with_another_workflow_tenant_or_input_is_a_conflict
        a_key_that_is_there_answers_with_the_run_it_names
        a_key_with_another_input_is_a_conflict
        one_key_twice_in_a_batch_is_one_run
        a_bad_start_does_not_spoil_its_batch
    }
    claims {
        a_claim_carries_the_facts_of_run_and_task
        parents_ends_come_sorted_by_index_with_their_outputs
        an_on_failure_task_is_told_what_failed
    }
    finishes {
        a_success_records_its_output_and_lets_the_children_run
        a_failure_is_recorded_and_fails_the_run
        a_repeated_finish_is_accepted_already_and_has_no_second_effect
        a_repeated_finish_cannot_change_its_mind
    }
    lanes {
        no_more_tasks_with_one_key_are_under_way_than_slots
        a_key_that_cannot_be_one_is_refused_and_spoils_nothing
    }
    dead {
        a_task_that_failed_for_good_is_a_dead_letter
        a_redriven_run_goes_on_with_its_next_round
        what_operators_do_is_written_down
    }
    retention {
        what_goes_to_the_archive_is_told_there
    }
    checkpoints {
        a_checkpoint_is_handed_to_the_next_attempt
    }
    steps {
        what_was_recorded_is_handed_to_the_next_attempt
        a_result_that_is_recorded_never_changes
        a_signal_wakes_the_function_that_waits_for_it
        signals_are_taken_in_the_order_in_which_they_were_sent
        a_function_that_failed_goes_on_from_its_last_failed_step
    }
    keys {
        signals_to_a_key_are_kept_and_taken_in_their_order
        a_signal_to_a_key_that_is_sent_again_is_sent_once
    }
    continues {
        a_function_that_begins_afresh_has_its_new_input_and_knows_nothing_else
        a_start_is_known_again_after_its_run_began_afresh
    }
    undo {
        a_failed_run_with_steps_that_can_be_undone_is_undone
    }
    children {
        a_child_is_started_once_however_often_it_is_asked_for
        a_function_goes_on_when_enough_of_its_children_have_ended
        a_retried_function_starts_its_children_anew
    }
    schedules {
        a_schedule_is_recorded_as_it_was_asked_for
        a_nominal_time_starts_its_run_when_it_comes_and_never_again
        a_trigger_starts_a_run_now_and_once
    }
    duties {
        an_error_is_written_down_and_the_next_time_comes
    }
}

#[tokio::test]
async fn a_start_in_a_transaction_leaves_no_field_readable_because_the_store_says_so() {
    let within = postgres().await;
    let mut order = Workflow::<Value>::builder("order");
    let charge = order.task("charge").limit(Limit::per("card", 1));
    charge.run(async |_: Ctx<Value>| Ok::<_, TaskError>(()));
    let order = order.build().unwrap();
    within.store.register(order.definition().clone()).await.unwrap();
    let plain = Windlass::with_store(within.store.clone());
    let known = plain.workflows(WorkflowFilter::default()).await.unwrap().workflows;
    let input = || Payload::encode(&json!({ "card": "4111", "sum": 7 })).unwrap();
    let mut client = within.database.client().await;

    let sealed = plain.clone().sealed(keys());
    let mut transaction = client.transaction().await.unwrap();
    let start = sealed.start_known(&known[0], input()).in_transaction(&mut transaction);
    let error = start.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("`readable card`"), "{error}");

    // The program says it itself, here or by its keys.
    let told = plain.clone().sealed(keys().readable("card").unwrap());
    let start = told.start_known(&known[0], input()).in_transaction(&mut transaction);
    let by_keys = start.await.unwrap();
    let start = sealed.start(&order, input().decode().unwrap()).in_transaction(&mut transaction);
    let by_program = start.await.unwrap();
    let start = sealed.start_known(&known[0], input()).in_transaction(&mut transaction);
    let by_name = start.await.unwrap();
    transaction.commit().await.unwrap();
    for run in [by_keys, by_program, by_name] {
        let stored = plain.run(run.id()).get().await.unwrap().input.unwrap();
        let stored = stored.as_str();
        assert!(stored.contains("wl-sealed") && stored.contains("4111"), "{stored}");
        assert!(!stored.contains("sum"), "{stored}");
    }
}
