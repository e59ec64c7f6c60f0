//! The code under `src/generated` is what the files under `proto` say.
//!
//! `WINDLASS_WRITE_PROTO=1 cargo test -p windlass-proto` writes it anew. protox stands in for
//! protoc, so that nothing but cargo is needed.

use std::fs;
use std::path::Path;

use protox::prost::Message as _;

const FILES: [&str; 3] =
    ["windlass/v1/types.proto", "windlass/v1/worker.proto", "windlass/v1/client.proto"];

#[test]
fn the_code_is_what_the_messages_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut compiler = protox::Compiler::new([root.join("proto")]).expect("the directory is there");
    compiler.include_source_info(true).include_imports(true);
    compiler.open_files(FILES).expect("the files make sense");
    let with_comments = compiler.file_descriptor_set();
    let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join("proto");
    fs::create_dir_all(&made).expect("a directory of the test's own");
    tonic_prost_build::configure()
        .out_dir(&made)
        .bytes(".")
        .compile_fds(with_comments.clone())
        .expect("there is code for them");
    let mut bare = with_comments;
    bare.file.iter_mut().for_each(|file| file.source_code_info = None);
    let code = fs::read(made.join("windlass.v1.rs")).expect("the code was made");
    for (name, made) in [("windlass.v1.rs", code), ("windlass.v1.bin", bare.encode_to_vec())] {
        let path = root.join("src/generated").join(name);
        if std::env::var_os("WINDLASS_WRITE_PROTO").is_some() {
            fs::write(&path, &made).expect("the file can be written");
        }
        let committed = fs::read(&path).expect("the file is there");
        assert!(
            committed == made,
            "{name} is stale: WINDLASS_WRITE_PROTO=1 cargo test -p windlass-proto"
        );
    }
}
