//! `include/callgate.h` is what the sources say. `make header` writes it anew.
use std::path::Path;
use std::{env, fs};

#[test]
fn the_header_is_fresh() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let config = cbindgen::Config::from_file(root.join("ffi/cbindgen.toml")).unwrap();
    let mut header = Vec::new();
    cbindgen::Builder::new()
        .with_crate(root.join("ffi"))
        .with_config(config)
        .generate()
        .expect("cbindgen reads the sources")
        .write(&mut header);
    let path = root.join("include/callgate.h");
    if env::var_os("CALLGATE_WRITE_HEADER").is_some() {
        fs::write(&path, &header).unwrap();
    }
    let committed = fs::read(&path).unwrap_or_default();
    assert!(committed == header, "include/callgate.h is stale: run `make header`");
}
