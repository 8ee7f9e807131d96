//! The decision vectors, through the engine and through the C ABI. The numbers are exact, so that
//! a file that went missing, or a scenario that is no longer run, is a failure.
use std::path::PathBuf;

use callgate_tests::c;
use callgate_tests::vectors::{self, Surface, SurfaceC, SurfaceCore, report};

/// File, passed, and those that need kinds of limits which the surface can't make.
const EXPECTED: [(&str, u64, u64); 4] = [
    ("concurrency.jsonl", 18, 0),
    ("policy.jsonl", 4, 0),
    ("quota.jsonl", 7, 0),
    ("rate.jsonl", 33, 0),
];

fn passes(surface: &mut dyn Surface) {
    let files = vectors::files(&c::root().join("tests/vectors")).unwrap();
    let run = |file: &PathBuf| vectors::run_file(surface, file).unwrap();
    let tallies: Vec<_> = files.iter().map(run).collect();
    let numbers: Vec<_> = tallies
        .iter()
        .map(|tally| (tally.file.as_str(), tally.passed, tally.unsupported()))
        .collect();
    assert!(tallies.iter().all(|tally| tally.failed == 0), "{}", report::table(&tallies));
    assert_eq!(numbers, EXPECTED);
}

#[test]
fn the_engine_decides_as_the_vectors_say() {
    passes(&mut SurfaceCore);
}

#[test]
fn the_c_abi_decides_as_the_vectors_say() {
    passes(&mut SurfaceC::new());
}

#[test]
fn a_difference_is_found_in_every_field() {
    let line = r#"{"name":"n","source":"","unix_base_ns":"0","limits":[{"kind":"rate","count":"1",
        "period_ns":"10","burst":"1"}],"policies":{"default":[["0","CALLER"]]},"steps":[
        {"at":"0","op":"admit","permit":"p","expect":{"verdict":"ADMITTED","limit":"1",
        "remaining":"0","reset_after_ns":"10"}},
        {"at":"0","op":"admit","repeat":"2","expect":{"admitted":"0","last":{"verdict":"REFUSED",
        "reason":"RATE","by":"0","retry_after_ns":"10"}}},
        {"at":"0","op":"settle","permit":"p","outcome":"SUCCESS","expect":{"status":"OK"}}]}"#;
    let differs = |line: &str| {
        let scenario = serde_json::from_str(line).unwrap();
        vectors::difference(&scenario, &SurfaceCore.run(&scenario).unwrap())
    };
    assert_eq!(differs(line), None);
    for (field, right, wrong) in [
        ("verdict", r#""ADMITTED""#, r#""REFUSED""#),
        ("limit", r#""limit":"1""#, r#""limit":"2""#),
        ("remaining", r#""remaining":"0""#, r#""remaining":"1""#),
        ("reset_after_ns", r#""reset_after_ns":"10""#, r#""reset_after_ns":"9""#),
        ("admitted", r#""admitted":"0""#, r#""admitted":"1""#),
        ("reason", r#""RATE""#, r#""QUOTA""#),
        ("by", r#""by":"0""#, r#""by":"1""#),
        ("retry_after_ns", r#""retry_after_ns":"10""#, r#""retry_after_ns":"11""#),
        ("status", r#""status":"OK""#, r#""status":"LAPSED""#),
    ] {
        let difference = differs(&line.replacen(right, wrong, 1)).expect(field);
        assert!(difference.contains(field), "{field}: {difference}");
    }
}

#[test]
fn a_field_that_is_not_known_is_an_error() {
    let line = r#"{"name":"n","source":"","unix_base_ns":"0","limits":[],"policies":{},
        "steps":[{"at":"0","op":"admit","expect":{"surprise":"1"}}]}"#;
    assert!(serde_json::from_str::<vectors::Scenario>(line).is_err());
}
