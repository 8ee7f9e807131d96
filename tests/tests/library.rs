//! The finished C library: what it exports, what it needs, and what is not in it.
#![cfg(target_os = "linux")]
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use callgate_tests::c;

/// What the library may ask of the system: memory that is copied, and the clock.
const NEEDED: [&str; 7] =
    ["bcmp", "clock_gettime", "memcmp", "memcpy", "memmove", "memset", "strlen"];

/// Weak, and of every shared library.
const START_FILES: [&str; 4] = [
    "__cxa_finalize",
    "__gmon_start__",
    "_ITM_deregisterTMCloneTable",
    "_ITM_registerTMCloneTable",
];

fn printed(tool: &str, arguments: &[&str], file: &Path) -> String {
    let output = c::output(Command::new(tool).args(arguments).arg(file));
    String::from_utf8(output.stdout).unwrap()
}

/// The names in a list of `nm`, without the versions of the system's.
fn names(list: &str) -> BTreeSet<String> {
    let name = |line: &str| line.rsplit(' ').next().unwrap_or_default().to_owned();
    list.lines()
        .filter(|line| line.contains(' '))
        .map(name)
        .map(|name| name.split('@').next().unwrap_or_default().to_owned())
        .collect()
}

fn declared() -> BTreeSet<String> {
    let header = fs::read_to_string(c::root().join("include/callgate.h")).unwrap();
    let words = header.lines().filter(|line| !line.starts_with([' ', '/'])).filter_map(|line| {
        line.split_once('(').and_then(|(before, _)| before.rsplit([' ', '*']).next())
    });
    words.filter(|word| word.starts_with("callgate_")).map(str::to_owned).collect()
}

#[test]
fn the_library_is_newer_than_its_sources() {
    let changed = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
    // What it was built from, as the compiler says: files of tests are none of that.
    let list = fs::read_to_string(c::library().archive.with_extension("d")).unwrap();
    let (_, sources) = list.lines().next().and_then(|line| line.split_once(": ")).unwrap();
    let sources: Vec<&Path> = sources.split(' ').map(Path::new).collect();
    assert!(sources.iter().any(|source| source.ends_with("core/src/table.rs")), "{sources:?}");
    let newest = sources.iter().map(|source| changed(source)).max().unwrap();
    for library in [&c::library().archive, &c::library().shared] {
        assert!(changed(library) >= newest, "{} is stale", library.display());
    }
}

#[test]
fn the_shared_library_exports_what_the_header_declares_and_nothing_else() {
    let exported = names(&printed("nm", &["-D", "--defined-only"], &c::library().shared));
    assert!(exported.len() >= 19, "{exported:?}");
    assert_eq!(exported, declared());
}

#[test]
fn the_shared_library_needs_nothing_but_memory_functions_and_the_clock() {
    let undefined = names(&printed("nm", &["-D", "--undefined-only"], &c::library().shared));
    assert!(undefined.contains("clock_gettime"), "{undefined:?}");
    let allowed =
        |name: &String| NEEDED.contains(&name.as_str()) || START_FILES.contains(&name.as_str());
    let more: Vec<_> = undefined.iter().filter(|name| !allowed(name)).collect();
    assert!(more.is_empty(), "it needs {more:?}");
}

/// Of all symbols, also those that are not exported: the list is only worth something as long as
/// there is one, so the functions that must be there are looked for first.
#[test]
fn nothing_in_the_shared_library_panics_or_allocates() {
    let all = names(&printed("nm", &[], &c::library().shared));
    assert!(!all.is_empty(), "the symbol table was stripped");
    let is_local = |name: &String| name.contains("callgate_core") || name.contains("callgate..");
    assert!(all.iter().any(is_local), "no function of the engine's own is to be seen: {all:?}");
    let parts = [
        "panic",
        "unwrap_failed",
        "expect_failed",
        "unwind",
        "personality",
        "alloc",
        "bounds_check",
    ];
    let machinery =
        |name: &&String| parts.iter().any(|part| name.contains(part)) || name.as_str() == "free";
    let found: Vec<_> = all.iter().filter(machinery).collect();
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn the_static_library_brings_no_allocator() {
    let needed = names(&printed("nm", &["--undefined-only"], &c::library().archive));
    let allocates = |name: &&String| {
        ["__rust_alloc", "__rg_", "malloc", "calloc", "realloc", "free"]
            .iter()
            .any(|part| name.starts_with(part))
    };
    let found: Vec<_> = needed.iter().filter(allocates).collect();
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn the_shared_library_has_its_soname() {
    let dynamic = printed("readelf", &["-d"], &c::library().shared);
    let line = dynamic.lines().find(|line| line.contains("SONAME")).expect("a soname");
    assert!(line.contains(&format!("[{}]", c::soname())), "{line}");
}

#[test]
fn whose_code_is_in_the_library_is_told_with_it() {
    let of = |folder: &str| {
        fs::read_to_string(c::root().join(folder).join("LICENSE-THIRD-PARTY")).unwrap()
    };
    let notices = of("");
    assert_eq!([of("ffi/python"), of("ffi/node")], [notices.clone(), notices.clone()]);
    let (_, list) = notices.split_once(":\n\n").unwrap();
    let (list, _) = list.split_once("\n\n").unwrap();
    let first_words = |text: &str| -> BTreeSet<String> {
        text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
    };
    let mut tree = Command::new(env!("CARGO"));
    tree.current_dir(c::root());
    tree.args(["tree", "--locked", "--package", "callgate-ffi", "--edges", "normal"]);
    let tree = c::output(tree.args(["--target", "all", "--prefix", "none", "--format", "{p}"]));
    let mut contained = first_words(&String::from_utf8(tree.stdout).unwrap());
    contained.retain(|name| !name.starts_with("callgate-"));
    assert_eq!(first_words(list), contained);
}
