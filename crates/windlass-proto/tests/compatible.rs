//! Programs of the version before understand what is said now, and are understood.
//!
//! `previous/windlass.v1.bin` is what the version before says, as `src/generated/windlass.v1.bin`
//! was in it. When a version is released, it is copied there, by hand and by nothing else:
//! `cp crates/windlass-proto/{src/generated,tests/previous}/windlass.v1.bin`.

mod comparison;

use std::fs;
use std::path::Path;

use protox::Compiler;
use protox::file::{ChainFileResolver, File, FileResolver};
use protox::prost::Message as _;
use protox::prost_reflect::prost_types::FileDescriptorSet;

use comparison::differences;

fn read(name: &str) -> FileDescriptorSet {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    let bytes = fs::read(path).expect("the file is there");
    FileDescriptorSet::decode(bytes.as_slice()).expect("it holds descriptors")
}

#[test]
fn what_is_said_now_is_understood_by_the_version_before_and_the_other_way_round() {
    let before = read("tests/previous/windlass.v1.bin");
    let now = read("src/generated/windlass.v1.bin");
    assert!(before.file.iter().any(|file| file.package() == "windlass.v1"), "it is ours");
    assert_eq!(differences(&before, &now), [""; 0]);
}

/// A file that is given as text.
struct Text(&'static str);

impl FileResolver for Text {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        File::from_source(name, self.0)
    }
}

fn described(text: String) -> FileDescriptorSet {
    let mut resolver = ChainFileResolver::new();
    resolver.add(Text(text.leak()));
    let mut compiler = Compiler::with_file_resolver(resolver);
    compiler.open_file("ship.proto").expect("the file makes sense");
    compiler.file_descriptor_set()
}

const SHIP: &str = r#"
syntax = "proto3";
package ship.v1;
message Ship {
  reserved 9;
  reserved "sails";
  string name = 1;
  optional uint32 length = 2;
  repeated Deck decks = 3;
  oneof place {
    string port = 4;
    Position at = 5;
  }
  State state = 6;
  map<string, uint64> cargo = 7;
  message Deck {
    uint32 cabins = 1;
  }
}
message Position {
  int64 north = 1;
}
enum State {
  reserved 7;
  reserved "STATE_LOST";
  STATE_UNSPECIFIED = 0;
  STATE_AFLOAT = 1;
  STATE_SUNK = 2;
}
service Harbour {
  rpc Enter(Ship) returns (Position);
  rpc Watch(Position) returns (stream Ship);
}
"#;

/// Changes each of the parts, which must be there, into the other.
fn changed(parts: &[(&str, &str)]) -> Vec<String> {
    let mut text = SHIP.to_owned();
    for (part, other) in parts {
        assert!(text.contains(part), "{part}");
        text = text.replace(part, other);
    }
    differences(&described(SHIP.to_owned()), &described(text))
}

#[test]
fn what_is_added_disturbs_nobody() {
    let added: &[(&str, &str)] = &[
        ("string name = 1;", "string name = 1;\nbool is_new = 10;"),
        ("Position at = 5;", "Position at = 5;\nbool is_lost = 11;"),
        ("STATE_SUNK = 2;", "STATE_SUNK = 2;\nSTATE_RAISED = 3;"),
        ("message Position {", "message Anchor { bool is_down = 1; }\nmessage Position {"),
        ("rpc Enter(Ship)", "rpc Leave(Ship) returns (Ship);\nrpc Enter(Ship)"),
    ];
    assert_eq!(changed(added), [""; 0]);
    assert_eq!(changed(&[]), [""; 0]);
}

#[test]
fn what_goes_stays_reserved() {
    let field = ("string name = 1;", "reserved 1;\nreserved \"name\";");
    assert_eq!(changed(&[field]), [""; 0]);
    let value = ("STATE_SUNK = 2;", "reserved 2;\nreserved \"STATE_SUNK\";");
    assert_eq!(changed(&[value]), [""; 0]);
    for (half, lacks) in [("reserved 1;", "name"), ("reserved \"name\";", "number")] {
        let found = changed(&[("string name = 1;", half)]);
        let what = format!(".ship.v1.Ship.name = 1 is gone and its {lacks} is not reserved");
        assert_eq!(found, [what]);
    }
}

#[test]
fn each_change_that_breaks_something_is_found_and_named() {
    let cases: &[(&str, &str, &str)] = &[
        ("string name = 1;", "", "Ship.name = 1 is gone and its number is not reserved"),
        ("string name = 1;", "string name = 8;", "Ship.name = 1 is gone and its number"),
        ("string name = 1;", "bytes name = 1;", "Ship.name = 1 is TYPE_BYTES, it was TYPE_STRING"),
        ("string name = 1;", "string title = 1;", "Ship.name = 1 is called title"),
        (
            "string name = 1;",
            "string name = 1 [json_name = \"title\"];",
            "Ship.name = 1 is \"title\" in JSON, it was \"name\"",
        ),
        ("string name = 1;", "repeated string name = 1;", "Ship.name = 1 is LABEL_REPEATED"),
        ("string name = 1;", "optional string name = 1;", "Ship.name = 1 is in the oneof _name"),
        ("optional uint32 length", "uint32 length", "Ship.length = 2 is in no oneof"),
        ("uint32 length", "uint64 length", "Ship.length = 2 is TYPE_UINT64"),
        ("Position at = 5;", "Ship at = 5;", "Ship.at = 5 is .ship.v1.Ship, it was .ship.v1.Posi"),
        ("oneof place {", "oneof where {", "Ship.port = 4 is in the oneof where, it was in the"),
        (
            "    string port = 4;\n",
            "    bool is_lost = 10;\n  }\n  string port = 4;\n  oneof more {\n",
            "Ship.port = 4 is in no oneof, it was in the oneof place",
        ),
        ("map<string, uint64>", "map<string, string>", "CargoEntry.value = 2 is TYPE_STRING"),
        ("  reserved 9;\n", "  bool is_new = 9;\n", "Ship.is_new uses 9, which is reserved"),
        (
            "  reserved \"sails\";\n  string name = 1;",
            "  string name = 1;\n  uint32 sails = 10;",
            "Ship.sails uses a name that is reserved",
        ),
        ("STATE_SUNK = 2;", "", "State.STATE_SUNK = 2 is gone and its number is not reserved"),
        ("STATE_SUNK = 2;", "STATE_SUNK = 3;", "State.STATE_SUNK = 2 is 3"),
        ("STATE_SUNK = 2;", "STATE_DROWNED = 2;", "State.STATE_SUNK = 2 is gone"),
        (
            "  reserved 7;\n  reserved \"STATE_LOST\";\n  STATE_UNSPECIFIED = 0;",
            "  reserved \"STATE_LOST\";\n  STATE_UNSPECIFIED = 0;\n  STATE_NEW = 7;",
            "State.STATE_NEW uses 7, which is reserved",
        ),
        (
            "  reserved \"STATE_LOST\";\n  STATE_UNSPECIFIED = 0;",
            "  STATE_UNSPECIFIED = 0;\n  STATE_LOST = 8;",
            "State.STATE_LOST uses a name that is reserved",
        ),
        ("rpc Enter(Ship) returns (Position);", "", "Harbour.Enter is gone"),
        ("rpc Enter(Ship)", "rpc Enter(stream Ship)", "Harbour.Enter is asked in a stream"),
        ("returns (stream Ship)", "returns (Ship)", "Harbour.Watch is answered once"),
        ("rpc Enter(Ship)", "rpc Enter(Position)", "Harbour.Enter takes .ship.v1.Position"),
        (
            "rpc Watch(Position) returns (stream Ship)",
            "rpc Watch(Position) returns (stream Position)",
            "Harbour.Watch answers .ship.v1.Position",
        ),
        ("service Harbour {", "service Port {", "service .ship.v1.Harbour is gone"),
        ("package ship.v1;", "package ship.v2;", "message .ship.v1.Ship is gone"),
    ];
    for (part, other, culprit) in cases {
        let found = changed(&[(part, other)]);
        assert!(found.iter().any(|it| it.contains(culprit)), "{part} → {other}: {found:#?}");
    }
    let renamed = [("enum State {", "enum Mood {"), ("State state = 6;", "Mood state = 6;")];
    let found = changed(&renamed);
    assert!(found.contains(&"enum .ship.v1.State is gone".to_owned()), "{found:#?}");
    let renamed = [("message Deck {", "message Floor {"), ("repeated Deck", "repeated Floor")];
    let found = changed(&renamed);
    assert!(found.contains(&"message .ship.v1.Ship.Deck is gone".to_owned()), "{found:#?}");
}
