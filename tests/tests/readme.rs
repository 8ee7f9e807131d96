//! The README's programs work as they are written there.
use std::fs;
use std::process::Command;

use callgate_tests::c::{self, Language};

/// The README's only block in `language`.
fn block(language: &str) -> String {
    let readme = fs::read_to_string(c::root().join("README.md")).unwrap();
    let (_, rest) = readme.split_once(&format!("```{language}\n")).expect("the block begins");
    let (block, _) = rest.split_once("```").expect("the block ends");
    block.to_owned()
}

#[test]
fn the_c_program_decides() {
    let include = "#include \"callgate.h\"\n";
    let body = block("c").replace(include, "");
    let program = format!(
        "{include}#include <stdio.h>\nint main(void) {{\n{body}\n\
         printf(\"%u %llu\\n\", decision.admitted, (unsigned long long)decision.remaining);\n}}\n"
    );
    let directory = c::library().archive.with_file_name("callgate-programs");
    fs::create_dir_all(&directory).unwrap();
    let (source, binary) = (directory.join("readme.c"), directory.join("readme"));
    fs::write(&source, program).unwrap();
    let mut command = c::compiler(Language::C);
    // The example aligns its memory as C11 does.
    command.arg("-std=c11").arg(&source).arg(&c::library().archive).arg("-o").arg(&binary);
    c::output(&mut command);
    let printed = c::output(&mut Command::new(&binary)).stdout;
    assert_eq!(String::from_utf8(printed).unwrap(), "1 59\n");
}
