//! Runs every `*.jsonl` of a folder through the surfaces of the project, and prints a line for each
//! file and surface: passed, failed, unsupported, the first difference.
//!
//! `vectors DIR [--surface core|c|python|node|go]`. Fails where any scenario does.
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use callgate_tests::vectors::{self, RUNNERS, Surface, SurfaceC, SurfaceCore, Tally, report};

const SURFACES: [&str; 5] = ["core", "c", "python", "node", "go"];

fn main() -> ExitCode {
    let (folder, surfaces) = match arguments() {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("{error}\nusage: vectors DIR [--surface {}]", SURFACES.join("|"));
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
        other => {
            let runner = RUNNERS.iter().find(|runner| runner.surface == other);
            runner.ok_or_else(|| "no runner".to_owned()).and_then(|runner| runner.run(folder))
        }
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
