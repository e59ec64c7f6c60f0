//! Known answers of the envelope, and what it does not open.

use windlass_core::decide::MESSAGE_BYTES_MAX;
use windlass_core::decide::SEALED_MESSAGE_BYTES_MAX;
use windlass_core::{
    Call, Failure, FailureCode, IdempotencyKey, Payload, RunId, SignalKey, StepName, TaskId,
    TaskIndex, TaskName, Tenant, WorkflowName,
};

use super::envelope::{self, Unopened};
use super::keyring::{KEY_ID_BYTES_MAX, Keyring};
use super::place::Place;
use crate::store::leaders::SEALED_ERROR_CHARS_MAX;
use crate::store::{DutyEnd, DutyMandate, DutyOutcome};

/// The bytes 0 to 31.
const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

fn ring() -> Keyring {
    Keyring::parse(&format!("k1:{KEY}")).unwrap()
}

fn run(last: u8) -> RunId {
    let mut bytes = [0; 16];
    (bytes[0], bytes[1], bytes[15]) = (0x01, 0x8f, last);
    RunId::from_uuid(uuid::Uuid::from_bytes(bytes))
}

fn task(last: u8, index: u32) -> TaskId {
    TaskId { run: run(last), index: TaskIndex(index) }
}

fn payload(text: &str) -> Payload {
    Payload::from_json(text).unwrap()
}

/// Made by another implementation: `hmac` and `cryptography` of Python.
#[test]
fn the_form_of_a_sealed_value_is_the_documented_one() {
    let (ring, plain) = (ring(), payload(r#"{"iban":"DE02"}"#));
    let output = Place::Output(task(0, 2));
    let sealed = envelope::seal(ring.first(), &output, &plain, &[]);
    let data = "1.k1.AKfTKORod60DZ-pyw6PnkZfF4MP4Bsmf_CK8fxIHXavUILYKjLYxpRmdQW1GB0O5dfUaCevpwtw";
    assert_eq!(sealed.as_str(), format!(r#"{{"wl-sealed":"{data}"}}"#));
    assert_eq!(envelope::open(&ring, &output, &sealed), Ok(plain));

    let plain = payload(r#"{"customer":"c-7","iban":"DE02"}"#);
    let (tenant, workflow) = (Tenant::new("acme").unwrap(), WorkflowName::new("order").unwrap());
    let key = Place::digest_of_key(&IdempotencyKey::new("order-1").unwrap());
    let keyed = Place::KeyedInput(&tenant, &workflow, key);
    let fields = ["customer".to_owned(), "region.name".to_owned()];
    let sealed = envelope::seal(ring.first(), &keyed, &plain, &fields);
    let data = "1.k1.AW2cjFU1ndHPN8VdF2Nps68uBmU0Xy4eLwHAka2I4jFPcjqpZ48qt3HOyMF3Ipk3hgAzx0RFdiNJ\
                g3r-c-eSeyo29iuJRs5xlrDglyloS-dgG8YpCBrSnNQ";
    assert_eq!(sealed.as_str(), format!(r#"{{"customer":"c-7","wl-sealed":"{data}"}}"#));
    assert_eq!(envelope::open(&ring, &keyed, &sealed), Ok(plain.clone()));
    let turned = payload(&format!(r#"{{ "wl-sealed": "{data}", "customer": "c-7" }}"#));
    assert_eq!(envelope::open(&ring, &keyed, &turned), Ok(plain));

    let failure = Place::Failure(run(0));
    let sealed = envelope::seal_text(ring.first(), &failure, "no funds: DE02");
    let data = "1.k1.AAOI6yS8mzs9rSIGXKmWUfjBZ1Dp0nPt7xjfqQZjXTXxoXlAWjcXsvLjumPeSJD8qUDbcnGlHg";
    assert_eq!(sealed, format!("wl-sealed.{data}"));
    assert_eq!(envelope::open_text(&ring, &failure, sealed), "no funds: DE02");
}

#[test]
fn a_value_with_a_changed_byte_is_refused() {
    let (ring, place) = (ring(), Place::Output(task(0, 2)));
    let sealed = envelope::seal(ring.first(), &place, &payload("[1,2,3]"), &[]);
    let text = sealed.as_str();
    let changed = (0..text.len()).filter_map(|at| {
        let mut bytes = text.as_bytes().to_vec();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        Payload::from_json(String::from_utf8(bytes).unwrap()).ok()
    });
    let mut refused = 0;
    for changed in changed {
        match envelope::open(&ring, &place, &changed) {
            // Another name of the member: it is no envelope, and plain where that is allowed.
            Ok(opened) => assert!(opened == changed && !text_has_member(&changed), "{changed:?}"),
            Err(_) => refused += 1,
        }
    }
    // The version, the dots, the id and all of the data.
    assert!(refused >= text.len() - r#"{"wl-sealed":""}"#.len(), "{refused} of {text}");
    let required = ring.required(true);
    for at in 0..text.len() {
        let mut bytes = text.as_bytes().to_vec();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        let changed = Payload::from_json(String::from_utf8(bytes).unwrap());
        let opened = changed.map(|changed| envelope::open(&required, &place, &changed));
        assert!(!matches!(opened, Ok(Ok(_))), "byte {at} of {text}");
    }
}

fn text_has_member(payload: &Payload) -> bool {
    payload.as_str().contains("\"wl-sealed\":")
}

#[test]
fn a_value_that_is_moved_to_another_place_is_refused() {
    let (ring, plain) = (ring(), payload("[1]"));
    let (acme, other) = (Tenant::new("acme").unwrap(), Tenant::new("other").unwrap());
    let (order, refund) =
        (WorkflowName::new("order").unwrap(), WorkflowName::new("refund").unwrap());
    let (go, stop) = (StepName::new("go").unwrap(), StepName::new("stop").unwrap());
    let (a, b) = (SignalKey::new("a").unwrap(), SignalKey::new("b").unwrap());
    let (charge, ship) = (TaskName::new("charge").unwrap(), TaskName::new("ship").unwrap());
    let key = |text: &str| Place::digest_of_key(&IdempotencyKey::new(text).unwrap());
    let places = [
        Place::Input(run(0)),
        Place::Input(run(1)),
        Place::KeyedInput(&acme, &order, key("a")),
        Place::KeyedInput(&acme, &order, key("b")),
        Place::KeyedInput(&acme, &refund, key("a")),
        Place::KeyedInput(&other, &order, key("a")),
        Place::ScheduleInput(&acme, &order, key("a")),
        Place::Afresh(run(0)),
        Place::Output(task(0, 0)),
        Place::Output(task(0, 1)),
        Place::Output(task(1, 0)),
        Place::Checkpoint(task(0, 0)),
        Place::Progress(task(0, 0)),
        Place::Step(task(0, 0), Call(1)),
        Place::Step(task(0, 0), Call(2)),
        Place::Step(task(0, 1), Call(1)),
        Place::Signal(run(0), &go),
        Place::Signal(run(0), &stop),
        Place::Signal(run(1), &go),
        Place::KeySignal(&acme, &a, &go),
        Place::KeySignal(&acme, &b, &go),
        Place::KeySignal(&acme, &a, &stop),
        Place::KeySignal(&other, &a, &go),
        Place::Once(&acme, &order, &charge, "a"),
        Place::Once(&acme, &order, &charge, "b"),
        Place::Once(&acme, &order, &ship, "a"),
        Place::Once(&other, &order, &charge, "a"),
        Place::Failure(run(0)),
        Place::Failure(run(1)),
        Place::Reason(run(0)),
    ];
    for (number, from) in places.iter().enumerate() {
        let sealed = envelope::seal(ring.first(), from, &plain, &[]);
        for (other, to) in places.iter().enumerate() {
            let opened = envelope::open(&ring, to, &sealed);
            match number == other {
                true => assert_eq!(opened, Ok(plain.clone()), "{from:?}"),
                false => {
                    let refused = Err(Unopened::Refused("k1".to_owned()));
                    assert_eq!(opened, refused, "{from:?} as {to:?}");
                }
            }
        }
    }
}

#[test]
fn a_field_that_limits_read_cannot_be_exchanged() {
    let (ring, place) = (ring(), Place::Input(run(0)));
    let plain = payload(r#"{"who":{"id":7},"what":"x"}"#);
    let sealed = envelope::seal(ring.first(), &place, &plain, &["who.id".to_owned()]);
    assert!(sealed.as_str().contains(r#""who":{"id":7}"#), "{sealed:?}");
    assert!(!sealed.as_str().contains("what"), "{sealed:?}");
    let other = payload(&sealed.as_str().replace(":7}", ":8}"));
    assert_eq!(envelope::open(&ring, &place, &sealed), Ok(plain));
    assert_eq!(envelope::open(&ring, &place, &other), Err(Unopened::Refused("k1".to_owned())));
}

#[test]
fn what_is_beside_an_envelope_is_what_it_was_sealed_with_and_nothing_else() {
    let (ring, place) = (ring(), Place::Input(run(0)));
    let text = r#"{"cust":{"id":"alice","card":"4111"},"cust.id":"alice","list":[],"rest":{}}"#;
    let plain = payload(text);
    let fields = ["cust.id".to_owned(), "rest.of".to_owned(), "list.of".to_owned()];
    let sealed = envelope::seal(ring.first(), &place, &plain, &fields);
    let Ok(serde_json::Value::Object(members)) = sealed.decode() else { panic!("{sealed:?}") };
    let envelope = members["wl-sealed"].as_str().unwrap();
    let with = |beside: &str| {
        let text = format!(r#"{{{beside}"wl-sealed":"{envelope}"}}"#);
        envelope::open(&ring, &place, &payload(&text))
    };
    // As it is written: an object in which there is nothing to copy stays without members.
    let honest = r#""cust":{"id":"alice"},"list":{},"rest":{},"#;
    assert_eq!(sealed.as_str(), format!(r#"{{{honest}"wl-sealed":"{envelope}"}}"#));
    assert_eq!(with(honest), Ok(plain));
    for beside in [
        "",
        // Each has what was sealed beside it at the path `.cust.id`, spelled in another way.
        r#""cust":{"id":"mallory"},"cust.id":"alice","#,
        r#""cust.id":"alice","#,
        r#""cust":{"id":"alice"},"cust.id":"alice","#,
        r#""cust":{"id":"mallory"},"cust":{"id":"alice","card":{"id":{}}},"#,
        // What is of no sealed field.
        r#""cust":{"id":"alice"},"more":{},"#,
        r#""cust":{"id":"alice"},"more":{"of":{"it":{}}},"#,
        r#""cust":{"id":"alice","more":{}},"#,
        r#""cust":{"id":"alice","card":"4111"},"#,
        r#""cust":{"id":"alice"},"list":[],"#,
        r#""cust":{"id":"alice"},"more":null,"#,
        r#""cust":{"id":["alice"]},"#,
    ] {
        assert_eq!(with(beside), Err(Unopened::Refused("k1".to_owned())), "{beside}");
    }
}

#[test]
fn a_key_with_an_impossible_id_is_not_named() {
    let place = Place::Input(run(0));
    for id in ["k".repeat(5_000), "k 1".to_owned(), "\u{202e}k".to_owned(), String::new()] {
        let text = format!(r#"{{"wl-sealed":"1.{id}.AAAA"}}"#);
        assert_eq!(envelope::open(&ring(), &place, &payload(&text)), Err(Unopened::UnknownForm));
        assert_eq!(super::describe(&text), None);
        let text = format!("wl-sealed.1.{id}.{}", "A".repeat(60));
        assert_eq!(super::describe(&text), None);
        assert_eq!(envelope::open_text(&ring(), &place, text.clone()), text);
    }
}

#[test]
fn a_key_that_is_not_there_is_named_and_one_of_the_same_name_is_no_help() {
    let place = Place::Input(run(0));
    let sealed = envelope::seal(ring().first(), &place, &payload("7"), &[]);
    let fresh = |id| Keyring::parse(&Keyring::fresh_line(id).unwrap()).unwrap();
    let error = envelope::open(&fresh("k2"), &place, &sealed).unwrap_err();
    assert_eq!(error.to_string(), "was sealed with the key \"k1\", which is not in the keyring");
    let error = envelope::open(&fresh("k1"), &place, &sealed).unwrap_err();
    assert_eq!(error, Unopened::Refused("k1".to_owned()));
    let newer = payload(r#"{"wl-sealed":"2.k1.AAAA"}"#);
    assert_eq!(envelope::open(&ring(), &place, &newer), Err(Unopened::UnknownForm));
    let rotated = format!("{}\nk1:{KEY}", Keyring::fresh_line("k2").unwrap());
    let rotated = Keyring::parse(&rotated).unwrap();
    assert_eq!(envelope::open(&rotated, &place, &sealed), Ok(payload("7")));
}

#[test]
fn what_is_not_sealed_is_read_unless_it_must_be() {
    let (place, plain) = (Place::Input(run(0)), payload(r#"{"a":"wl-sealed"}"#));
    assert_eq!(envelope::open(&ring(), &place, &plain), Ok(plain.clone()));
    let required = ring().required(true);
    assert_eq!(envelope::open(&required, &place, &plain), Err(Unopened::Plain));
    // Nothing is nothing, and stores say so themselves.
    let nothing = Payload::default();
    assert_eq!(envelope::seal(required.first(), &place, &nothing, &[]), nothing);
    assert_eq!(envelope::open(&required, &place, &nothing), Ok(nothing));
}

#[test]
fn the_same_value_at_the_same_place_is_sealed_the_same_way_and_nothing_else_is() {
    let (ring, one, two) = (ring(), payload("1"), payload("2"));
    let seal = |last, value| envelope::seal(ring.first(), &Place::Input(run(last)), value, &[]);
    assert_eq!(seal(0, &one), seal(0, &one));
    assert_ne!(seal(0, &one), seal(0, &two));
    assert_ne!(seal(0, &one), seal(1, &one));
}

#[test]
fn the_longest_texts_fit_where_they_are_kept() {
    let id = "k".repeat(KEY_ID_BYTES_MAX);
    let ring = Keyring::parse(&format!("{id}:{KEY}")).unwrap();
    let mut failure = Failure::new(FailureCode::Error, "x".repeat(2 * MESSAGE_BYTES_MAX));
    let plain = failure.message.clone();
    ring.seal_failure(task(0, 0), &mut failure);
    assert!(2 * failure.message.len() < SEALED_MESSAGE_BYTES_MAX, "one that has another's");
    let kept = Failure::new(FailureCode::Error, failure.message.clone());
    assert_eq!(kept.message, failure.message);
    ring.open_failure(run(0), &mut failure);
    assert_eq!(failure.message, plain);

    let name = windlass_core::DutyName::new("tidy").unwrap();
    let mandate = DutyMandate {
        name: name.clone(),
        candidate: windlass_core::CandidateId::from_random(1),
        term: windlass_core::Term(1),
    };
    let outcome = DutyOutcome::Failed("\u{1f980}".repeat(1_000));
    let mut end = DutyEnd { mandate, took: std::time::Duration::ZERO, outcome };
    ring.seal_duty_end(&mut end);
    let DutyOutcome::Failed(sealed) = end.outcome else { panic!("it failed") };
    assert!(sealed.len() <= SEALED_ERROR_CHARS_MAX, "{} bytes", sealed.len());
    let opened = envelope::open_text(&ring, &Place::Duty(&name), sealed);
    assert!(opened.starts_with("\u{1f980}") && opened.ends_with('…'));
}

/// What it costs, for `docs/encryption.md`:
/// `cargo test --release -p windlass --lib -- --ignored --nocapture what_sealing_costs`.
#[test]
#[ignore = "it measures, and asserts nothing"]
fn what_sealing_costs() {
    let (ring, place) = (ring(), Place::Input(run(0)));
    for bytes in [64, 1 << 10, 16 << 10, 256 << 10] {
        let plain = payload(&format!("\"{}\"", "x".repeat(bytes - 2)));
        let rounds = (64 << 20) / bytes.max(1 << 10);
        let began = std::time::Instant::now();
        for _ in 0..rounds {
            std::hint::black_box(envelope::seal(ring.first(), &place, &plain, &[]));
        }
        let seals = began.elapsed() / u32::try_from(rounds).unwrap();
        let sealed = envelope::seal(ring.first(), &place, &plain, &[]);
        let began = std::time::Instant::now();
        for _ in 0..rounds {
            std::hint::black_box(envelope::open(&ring, &place, &sealed).unwrap());
        }
        let opens = began.elapsed() / u32::try_from(rounds).unwrap();
        let stored = sealed.as_str().len();
        println!(
            "{bytes} bytes: sealed in {seals:?}, opened in {opens:?}, stored as {stored} bytes"
        );
    }
}
