//! `tests/c/conformance.c`, and `tests/c/clock.c`, compiled as C99 and as C++17 and linked with both
//! forms of the library.
use std::fs;
use std::io::Write as _;
use std::process::Stdio;

use callgate_tests::c::{self, Language, Linked};

const SOURCES: [&str; 3] = ["conformance.c", "conformance_kinds.c", "conformance_errors.c"];

/// Runs the programs, and shows what they printed if they fail.
fn conforms(language: Language, linked: Linked) {
    for (sources, fewest) in [(&SOURCES[..], 2500), (&["clock.c"], 70)] {
        let (status, printed) = c::run(&c::compile(sources, language, linked));
        let summary = printed.lines().last().unwrap_or_default();
        let checks: u32 =
            summary.split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or_default();
        assert!(status.success(), "{status}\n{printed}");
        assert!(checks > fewest && summary.ends_with("checks, 0 failed"), "{printed}");
    }
}

#[test]
fn a_c99_program_finds_the_static_library_as_documented() {
    conforms(Language::C, Linked::Static);
}

#[test]
fn a_c99_program_finds_the_shared_library_as_documented() {
    conforms(Language::C, Linked::Shared);
}

#[test]
fn a_cpp17_program_finds_the_static_library_as_documented() {
    conforms(Language::Cpp, Linked::Static);
}

#[test]
fn a_cpp17_program_finds_the_shared_library_as_documented() {
    conforms(Language::Cpp, Linked::Shared);
}

#[test]
fn the_header_compiles_alone() {
    for language in [Language::C, Language::Cpp] {
        compiles(language, &[], "#include \"callgate.h\"\n");
        compiles(language, &[], "#include \"layout.h\"\n");
    }
    for newer in ["-std=c11", "-std=c17"] {
        compiles(Language::C, &[newer], "#include \"layout.h\"\n");
    }
}

fn compiles(language: Language, arguments: &[&str], source: &str) {
    let mut command = c::compiler(language);
    command.args(arguments).arg("-fsyntax-only");
    if let Language::C = language {
        command.args(["-x", "c"]);
    }
    let spawned = command.arg("-").stdin(Stdio::piped()).spawn();
    let mut child = spawned.unwrap_or_else(|e| panic!("{command:?}: {e}"));
    child.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{command:?}: {source}");
}

#[test]
fn the_program_calls_every_function_of_the_header() {
    let header = fs::read_to_string(c::root().join("include/callgate.h")).unwrap();
    let declared = |line: &str| {
        let (before, _) = line.split_once('(')?;
        let name = before.rsplit([' ', '*']).next()?;
        (name.starts_with("callgate_") && before != name && !line.starts_with("//"))
            .then(|| name.to_owned())
    };
    let functions: Vec<String> =
        header.lines().filter(|l| !l.starts_with(' ')).filter_map(declared).collect();
    assert!(functions.len() >= 19, "{functions:?}");
    let read = |source| fs::read_to_string(c::root().join("tests/c").join(source)).unwrap();
    let program = SOURCES.map(read).concat();
    for function in functions {
        assert!(program.contains(&format!("{function}(")), "{function} is never called");
    }
}
