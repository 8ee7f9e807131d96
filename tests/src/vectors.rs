//! The decision vectors: what a scenario says, and whether a surface of the project does it.
//!
//! README.md beside the vectors says what each field means. A field that is not known here is an
//! error, so that no expectation passes unread.
mod compare;
pub mod report;
mod runner;
mod scenario;
mod surface_c;
mod surface_core;

use std::path::{Path, PathBuf};

pub use compare::difference;
pub use report::Tally;
pub use runner::{RUNNERS, Runner};
pub use scenario::{Expectation, LimitSpec, Scenario, Step};
pub use surface_c::SurfaceC;
pub use surface_core::SurfaceCore;

/// What a decision came to, in the vectors' words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decided {
    /// `None` where it is admitted.
    pub reason: Option<String>,
    /// The index of the limit.
    pub by: Option<u64>,
    /// The exact wait.
    pub retry_after_ns: u64,
    /// What the limit holds.
    pub limit: u64,
    /// What is left of that.
    pub remaining: u64,
    /// When all of it is back.
    pub reset_after_ns: u64,
}

/// What a step of a scenario came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// How many of the step's calls were admitted, and what the last one was told.
    Decisions {
        /// How many.
        admitted: u64,
        /// The last.
        last: Decided,
    },
    /// The status of a settlement.
    Settled(String),
    /// Whether a quota was told.
    Seeded(bool),
    /// The step can't be done, and why.
    Error(String),
}

/// What a scenario came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ran {
    /// No gate could be made: the field that was named.
    ConfigError(String),
    /// Each step.
    Steps(Vec<Observed>),
}

/// A way into the engine.
pub trait Surface {
    /// What it is called in reports.
    fn name(&self) -> &'static str;
    /// Which kinds of limits it can make.
    fn kinds(&self) -> &'static [&'static str];
    /// Does what a scenario says.
    ///
    /// # Errors
    /// Where the surface itself broke down.
    fn run(&mut self, scenario: &Scenario) -> Result<Ran, String>;
}

/// The files of vectors in a folder, in order.
///
/// # Errors
/// Where there are none, or the folder can't be read.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
        .collect();
    files.sort();
    if files.is_empty() {
        return Err(format!("{}: no *.jsonl there", folder.display()));
    }
    Ok(files)
}

/// The scenarios of a file.
///
/// # Errors
/// Names the line that is not a scenario.
pub fn read(file: &Path) -> Result<Vec<Scenario>, String> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(n, line)| {
            serde_json::from_str(line).map_err(|e| format!("{}:{}: {e}", file.display(), n + 1))
        })
        .collect()
}

/// Runs a file's scenarios through a surface.
///
/// # Errors
/// Where the file can't be read or has no scenarios.
pub fn run_file(surface: &mut dyn Surface, file: &Path) -> Result<Tally, String> {
    let scenarios = read(file)?;
    if scenarios.is_empty() {
        return Err(format!("{}: no scenarios", file.display()));
    }
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let mut tally = Tally::new(surface.name(), &name);
    for scenario in &scenarios {
        let unknown = |limit: &LimitSpec| !surface.kinds().contains(&limit.kind.as_str());
        if scenario.limits.iter().any(unknown) {
            tally.unsupported_names.push(scenario.name.clone());
            continue;
        }
        let found = match surface.run(scenario) {
            Ok(ran) => difference(scenario, &ran),
            Err(broken) => Some(broken),
        };
        tally.count(&scenario.name, found);
    }
    Ok(tally)
}
