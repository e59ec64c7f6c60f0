//! Weighs gRPC messages before they are decoded.
//!
//! An element of a list takes two bytes on the wire and hundreds in memory. The scan here counts
//! the elements of every list of a message, at any depth, without allocating anything. What a
//! message will take is charged to the memory budget, and a message that would take more than
//! [`FACTOR_MAX`] times its size is refused.

use std::collections::HashMap;
use std::sync::LazyLock;

use axum::http::StatusCode;
use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FileDescriptorSet};
use windlass::ErrorKind;
use windlass_proto::v1;

use crate::problem::Problem;

/// How much a decoded message may take, in multiples of its own size, beyond [`FREE_BYTES`].
pub(super) const FACTOR_MAX: usize = 32;

/// How much any message may take when decoded.
const FREE_BYTES: usize = 1 << 20;

/// What an element of a list of messages takes in memory, at most, without its texts and lists.
const MESSAGE_BYTES: usize = 768;

/// What an element of a list of texts takes, without the text.
const TEXT_BYTES: usize = 32;

/// What an entry of a map takes, without its texts.
const ENTRY_BYTES: usize = 96;

/// The depth at which decoding fails.
const DEPTH_MAX: usize = 100;

/// A message type: its fields that can hold elements, by their numbers.
type Shape = HashMap<u64, Field>;

#[derive(Clone, Copy)]
struct Field {
    /// What each element takes.
    bytes: usize,
    /// The type, as its place among the shapes, if it is a message.
    shape: Option<usize>,
}

struct Shapes {
    shapes: Vec<Shape>,
    methods: HashMap<String, (usize, bool)>,
}

static SHAPES: LazyLock<Shapes> = LazyLock::new(|| {
    let files = FileDescriptorSet::decode(v1::DESCRIPTORS).expect("our own descriptors");
    Shapes::new(&files)
});

impl Shapes {
    fn new(files: &FileDescriptorSet) -> Self {
        let mut messages = Vec::new();
        for file in &files.file {
            for message in &file.message_type {
                collect(&format!(".{}", file.package()), message, &mut messages);
            }
        }
        let places: HashMap<&str, usize> =
            messages.iter().enumerate().map(|(place, (name, _))| (name.as_str(), place)).collect();
        let shape = |(_, message): &(String, &DescriptorProto)| {
            let fields = message.field.iter().filter_map(|field| {
                let of = places.get(field.type_name()).copied();
                let shape = of.filter(|_| field.r#type() == Type::Message);
                let is_entry = shape.is_some_and(|place| is_map_entry(messages[place].1));
                let bytes = match (field.label(), field.r#type()) {
                    (Label::Repeated, Type::Message) if is_entry => ENTRY_BYTES,
                    (Label::Repeated, Type::Message) => MESSAGE_BYTES,
                    (Label::Repeated, Type::String | Type::Bytes) => TEXT_BYTES,
                    // Of what is not a list the last value counts, in its place.
                    _ => 0,
                };
                let holds = bytes > 0 || shape.is_some();
                holds.then_some((field.number() as u64, Field { bytes, shape }))
            });
            fields.collect()
        };
        let shapes = messages.iter().map(shape).collect();
        let mut methods = HashMap::new();
        for file in &files.file {
            for service in &file.service {
                for method in &service.method {
                    let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                    let place = places.get(method.input_type()).copied();
                    let is_stream = method.client_streaming();
                    methods.extend(place.map(|place| (path, (place, is_stream))));
                }
            }
        }
        Shapes { shapes, methods }
    }
}

fn collect<'a>(
    scope: &str,
    message: &'a DescriptorProto,
    messages: &mut Vec<(String, &'a DescriptorProto)>,
) {
    let name = format!("{scope}.{}", message.name());
    for nested in &message.nested_type {
        collect(&name, nested, messages);
    }
    messages.push((name, message));
}

fn is_map_entry(message: &DescriptorProto) -> bool {
    message.options.as_ref().is_some_and(|options| options.map_entry())
}

/// How the messages of a method are weighed.
#[derive(Clone, Copy)]
pub(super) struct Weights {
    shape: usize,
    /// Whether the method takes many messages.
    pub(super) is_client_streaming: bool,
}

/// Returns how the messages of a method are weighed, or `None` if there is no such method.
pub(super) fn of_method(path: &str) -> Option<Weights> {
    let (shape, is_client_streaming) = SHAPES.methods.get(path).copied()?;
    Some(Weights { shape, is_client_streaming })
}

impl Weights {
    /// Returns how many bytes the elements of an encoded message will take when it is decoded,
    /// besides its texts.
    ///
    /// # Errors
    ///
    /// A problem if it is more than [`FACTOR_MAX`] times the message, or if it is not protobuf.
    pub(super) fn weigh(self, message: &[u8]) -> Result<usize, Problem> {
        let most = message.len().saturating_mul(FACTOR_MAX).saturating_add(FREE_BYTES);
        let mut total = 0;
        match weigh(self.shape, message, &mut total, most, 0) {
            Ok(()) => Ok(total),
            Err(Refused::Malformed) => {
                let detail = "body: it is not a protobuf message";
                Err(Problem::new(ErrorKind::Argument, detail))
            }
            Err(Refused::TooMany) => {
                let detail = format!(
                    "body: its {} bytes hold so many elements that decoding them would take more \
                     than {FACTOR_MAX} times as much memory; split the batch",
                    message.len()
                );
                Err(Problem::with_status(StatusCode::PAYLOAD_TOO_LARGE, ErrorKind::Payload, detail))
            }
        }
    }
}

enum Refused {
    Malformed,
    TooMany,
}

fn weigh(
    shape: usize,
    mut bytes: &[u8],
    total: &mut usize,
    most: usize,
    depth: usize,
) -> Result<(), Refused> {
    if depth > DEPTH_MAX {
        return Err(Refused::Malformed);
    }
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let skipped = match key & 7 {
            0 => {
                varint(&mut bytes)?;
                0
            }
            1 => 8,
            5 => 4,
            2 => {
                let length = usize::try_from(varint(&mut bytes)?);
                let length = length.map_err(|_| Refused::Malformed)?;
                let value = bytes.get(..length).ok_or(Refused::Malformed)?;
                if let Some(field) = SHAPES.shapes[shape].get(&(key >> 3)) {
                    *total += field.bytes;
                    if *total > most {
                        return Err(Refused::TooMany);
                    }
                    if let Some(inner) = field.shape {
                        weigh(inner, value, total, most, depth + 1)?;
                    }
                }
                length
            }
            // Groups are not part of proto3.
            _ => return Err(Refused::Malformed),
        };
        bytes = bytes.get(skipped..).ok_or(Refused::Malformed)?;
    }
    Ok(())
}

fn varint(bytes: &mut &[u8]) -> Result<u64, Refused> {
    let mut value = 0;
    for place in 0..10 {
        let (byte, rest) = bytes.split_first().ok_or(Refused::Malformed)?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Refused::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost_reflect::{DescriptorPool, Kind, MessageDescriptor};
    use std::collections::BTreeSet;

    fn start_runs() -> Weights {
        of_method("/windlass.v1.ClientService/StartRuns").expect("it is a method")
    }

    fn bytes_of(message: &impl prost::Message) -> Vec<u8> {
        message.encode_to_vec()
    }

    #[test]
    fn elements_are_counted_at_every_depth() {
        let run = v1::NewRun { metadata: [("a".into(), "b".into())].into(), ..Default::default() };
        let request = v1::StartRunsRequest { runs: vec![run.clone(), run] };
        let weight = start_runs().weigh(&bytes_of(&request)).expect("it is small");
        assert_eq!(weight, 2 * (MESSAGE_BYTES + ENTRY_BYTES));

        let task = v1::Task { parents: vec!["x".into(); 3], ..Default::default() };
        let definition = v1::Definition { tasks: vec![task; 5], ..Default::default() };
        let hello = v1::Hello { definitions: vec![definition], ..Default::default() };
        let request = v1::worker_request::Request::Hello(hello);
        let request = v1::WorkerRequest { id: 1, request: Some(request), takes_parts: true };
        let work = of_method("/windlass.v1.WorkerService/Work").expect("it is a method");
        assert!(work.is_client_streaming);
        let weight = work.weigh(&bytes_of(&request)).expect("it is small");
        assert_eq!(weight, 6 * MESSAGE_BYTES + 15 * TEXT_BYTES);
    }

    #[test]
    fn a_message_of_empty_elements_is_refused_and_a_batch_of_real_ones_is_not() {
        let empty = v1::StartRunsRequest { runs: vec![v1::NewRun::default(); 100_000] };
        let problem = start_runs().weigh(&bytes_of(&empty)).expect_err("it is 2 bytes each");
        assert!(problem.detail().contains("split the batch"), "{}", problem.detail());
        let run = v1::NewRun {
            id: "01981c2e-7a40-7c1f-9d57-0242ac120002".into(),
            workflow: "w".into(),
            ..Default::default()
        };
        let real = v1::StartRunsRequest { runs: vec![run; 10_000] };
        assert!(start_runs().weigh(&bytes_of(&real)).is_ok());
    }

    #[test]
    fn what_is_not_protobuf_is_refused() {
        for wrong in [&[0x0a][..], &[0x0a, 5, 1], &[0x0b, 0x0c], &[0xff; 11], &[0x09, 1]] {
            assert!(start_runs().weigh(wrong).is_err(), "{wrong:?}");
        }
        // Fields of a newer version are skipped.
        assert!(matches!(start_runs().weigh(&[0xf8, 0x7f, 1, 0xfa, 0x7f, 1, 7]), Ok(0)));
    }

    /// The types of elements of lists within a message.
    fn elements(message: &MessageDescriptor, known: &mut BTreeSet<String>, depth: usize) {
        for field in message.fields() {
            let Kind::Message(inner) = field.kind() else { continue };
            if field.is_list() {
                known.insert(inner.name().to_owned());
            }
            if depth < 8 {
                elements(&inner, known, depth + 1);
            }
        }
    }

    #[test]
    fn no_element_takes_more_than_it_is_weighed() {
        let pool = DescriptorPool::decode(v1::DESCRIPTORS).expect("our descriptors");
        let mut known = BTreeSet::new();
        for service in pool.services() {
            service.methods().for_each(|method| elements(&method.input(), &mut known, 0));
        }
        macro_rules! sizes {
            ($($name:ident),* $(,)?) => {
                BTreeSet::from([$((stringify!($name).to_owned(), size_of::<v1::$name>())),*])
            };
        }
        let sizes = sizes![
            Checkpoint,
            ChildStart,
            Definition,
            DutyDeclaration,
            DutyMandate,
            Held,
            Limit,
            NewRun,
            Progress,
            Recording,
            Release,
            Result,
            ScheduleKey,
            StepWrite,
            TakeSignal,
            Task,
            WorkflowVersion,
        ];
        let names: BTreeSet<String> = sizes.iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(names, known);
        for (name, bytes) in sizes {
            assert!(bytes <= MESSAGE_BYTES, "{name} takes {bytes} bytes");
        }
    }
}
