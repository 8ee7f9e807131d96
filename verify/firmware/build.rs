//! Puts the board's memory where the linker looks for it.
use std::path::Path;
use std::{env, fs};

fn main() {
    let board = match env::var("TARGET").unwrap().as_str() {
        "thumbv7em-none-eabi" => "mps2-an386.x",
        "thumbv6m-none-eabi" => "microbit.x",
        other => panic!("no board for {other}"),
    };
    let out = env::var("OUT_DIR").unwrap();
    fs::copy(board, Path::new(&out).join("memory.x")).unwrap();
    println!("cargo::rustc-link-search={out}");
    println!("cargo::rustc-link-arg-bins=-Tlink.x");
    println!("cargo::rerun-if-changed={board}");
}
