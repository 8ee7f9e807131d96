//! Runs every `*.jsonl` of a folder through the surfaces of the project, and prints a line for each
//! file and surface: passed, failed, unsupported, the first difference.
//!
//! `vectors DIR [--surface core|c|python]`. Fails where any scenario does.
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use callgate_tests::c;
use callgate_tests::vectors::{self, Surface, SurfaceC, SurfaceCore, Tally, report};

const SURFACES: [&str; 3] = ["core", "c", "python"];

fn main() -> ExitCode {
    let (folder, surfaces) = match arguments() {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("{error}\nusage: vectors DIR [--surface core|c|python]");
            return ExitCode::from(2);
        }
    };
    let mut tallies = Vec::new();
    for surface in surfaces {
        eprintln!("vectors of {} through {surface} ...", folder.display());
        tallies.extend(run(surface, &folder));
    }
    print!("{}", report::table(&tallies));
    let failed = tallies.iter().any(|tally| tally.failed > 0);
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn arguments() -> Result<(PathBuf, Vec<&'static str>), String> {
    let (mut folder, mut surface) = (None, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--surface" {
            let name = arguments.next().unwrap_or_default();
            let known = SURFACES.into_iter().find(|known| *known == name);
            surface = Some(known.ok_or_else(|| format!("no surface {name:?}"))?);
        } else if argument.starts_with('-') || folder.is_some() {
            return Err(format!("unexpected argument {argument:?}"));
        } else {
            folder = Some(PathBuf::from(argument));
        }
    }
    let folder = folder.ok_or("which folder?")?;
    Ok((folder, surface.map_or_else(|| SURFACES.to_vec(), |surface| vec![surface])))
}

fn run(surface: &str, folder: &Path) -> Vec<Tally> {
    let ran = match surface {
        "core" => through(&mut SurfaceCore, folder),
        "c" => through(&mut SurfaceC::new(), folder),
        _ => through_python(folder),
    };
    ran.unwrap_or_else(|error| vec![Tally::broken(surface, "*", error)])
}

fn through(surface: &mut dyn Surface, folder: &Path) -> Result<Vec<Tally>, String> {
    let name = surface.name();
    let run = |file: &PathBuf| {
        let ran = vectors::run_file(surface, file);
        ran.unwrap_or_else(|error| Tally::broken(name, &file.display().to_string(), error))
    };
    Ok(vectors::files(folder)?.iter().map(run).collect())
}

/// The Python package has a runner of its own, which prints a tally as JSON for each file.
fn through_python(folder: &Path) -> Result<Vec<Tally>, String> {
    let expected = vectors::files(folder)?.len();
    let python = std::env::var_os("CALLGATE_PYTHON").unwrap_or_else(|| "python3".into());
    let script = c::root().join("ffi/python/tests/vectors.py");
    let output = Command::new(python).arg(script).arg(folder).output();
    let output = output.map_err(|e| format!("python: {e}"))?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    let tallies: Vec<Tally> = printed
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).map_err(|e| format!("{line}: {e}")))
        .collect::<Result<_, _>>()?;
    if tallies.len() != expected {
        let last = said.lines().last().unwrap_or_default();
        return Err(format!("{} of {expected} files were run: {last}", tallies.len()));
    }
    if !output.status.success() && tallies.iter().all(|tally| tally.failed == 0) {
        return Err(format!("{}: {said}", output.status));
    }
    Ok(tallies)
}
