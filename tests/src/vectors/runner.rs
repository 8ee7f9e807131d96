//! The surfaces in other languages. Each has a runner of its own, a program that is given a folder,
//! prints a tally as JSON for each file, and fails where a scenario does.
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Output};

use super::{Tally, files, read};
use crate::c;

/// A surface in another language, and how its runner is started.
pub struct Runner {
    /// What the surface is called.
    pub surface: &'static str,
    /// The variable of the environment that names the program.
    variable: &'static str,
    /// The program where the environment names none.
    program: &'static str,
    /// What the program runs, in the project's folder.
    script: Option<&'static str>,
}

/// All of them.
pub const RUNNERS: [Runner; 3] = [
    Runner {
        surface: "python",
        variable: "CALLGATE_PYTHON",
        program: "python3",
        script: Some("ffi/python/tests/vectors.py"),
    },
    Runner {
        surface: "node",
        variable: "CALLGATE_NODE",
        program: "node",
        script: Some("ffi/node/test/vectors.mjs"),
    },
    Runner { surface: "go", variable: "CALLGATE_GO", program: "callgate-go-vectors", script: None },
];

impl Runner {
    /// Runs the files of a folder.
    ///
    /// # Errors
    /// Where the runner can't be started, or does not account for each scenario of each file.
    pub fn run(&self, folder: &Path) -> Result<Vec<Tally>, String> {
        let program =
            std::env::var_os(self.variable).unwrap_or_else(|| OsString::from(self.program));
        let script = self.script.map(|script| c::root().join(script));
        let output = Command::new(&program).args(script).arg(folder).output();
        let output = output.map_err(|e| format!("{}: {e}", program.display()))?;
        self.tallies(folder, &output)
    }

    fn tallies(&self, folder: &Path, output: &Output) -> Result<Vec<Tally>, String> {
        let printed = String::from_utf8_lossy(&output.stdout);
        let said = String::from_utf8_lossy(&output.stderr);
        let tallies: Vec<Tally> = printed
            .lines()
            .filter(|line| line.starts_with('{'))
            .map(|line| serde_json::from_str(line).map_err(|e| format!("{line}: {e}")))
            .collect::<Result<_, _>>()?;
        let expected = files(folder)?;
        if tallies.len() != expected.len() {
            let last = said.lines().last().unwrap_or_default();
            return Err(format!("{} of {} files were run: {last}", tallies.len(), expected.len()));
        }
        for (file, tally) in expected.iter().zip(&tallies) {
            self.accounts_for(file, tally)?;
        }
        if !output.status.success() && tallies.iter().all(|tally| tally.failed == 0) {
            return Err(format!("{}: {said}", output.status));
        }
        Ok(tallies)
    }

    /// No scenario goes missing.
    fn accounts_for(&self, file: &Path, tally: &Tally) -> Result<(), String> {
        let scenarios = read(file)?.len() as u64;
        let ran = tally.passed + tally.failed + tally.unsupported();
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        if tally.surface != self.surface || tally.file != name || ran != scenarios {
            return Err(format!(
                "of the {scenarios} scenarios of {name}, {ran} were run in {} of {}",
                tally.file, tally.surface
            ));
        }
        Ok(())
    }
}
