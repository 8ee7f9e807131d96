//! What came of the vectors, as a table.
use serde::Deserialize;

/// What came of one file through one surface. Surfaces in other languages print it as JSON.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tally {
    /// The surface's name.
    pub surface: String,
    /// The file's name.
    pub file: String,
    /// How many scenarios were as expected.
    pub passed: u64,
    /// How many were not.
    pub failed: u64,
    /// How many need what is not built yet.
    #[serde(default)]
    pub unsupported: u64,
    /// Of the first that failed: its name and what differed.
    pub first_difference: Option<String>,
    /// The names of those that need what is not built yet.
    #[serde(default)]
    pub unsupported_names: Vec<String>,
}

impl Tally {
    /// Nothing yet.
    pub fn new(surface: &str, file: &str) -> Self {
        Self { surface: surface.into(), file: file.into(), ..Self::default() }
    }

    /// Counts one scenario.
    pub fn count(&mut self, name: &str, difference: Option<String>) {
        match difference {
            None => self.passed += 1,
            Some(difference) => {
                self.failed += 1;
                self.first_difference.get_or_insert(format!("{name}: {difference}"));
            }
        }
    }

    /// How many need what is not built yet.
    pub fn unsupported(&self) -> u64 {
        self.unsupported.max(self.unsupported_names.len() as u64)
    }

    /// A file, or a surface, that could not be run at all.
    pub fn broken(surface: &str, file: &str, error: String) -> Self {
        let mut tally = Self::new(surface, file);
        tally.failed = 1;
        tally.first_difference = Some(error);
        tally
    }
}

/// The table, and under it what needs what is not built yet.
pub fn table(tallies: &[Tally]) -> String {
    let mut rows = vec![
        ["surface", "file", "passed", "failed", "unsupported", "first difference"]
            .map(str::to_owned),
    ];
    rows.extend(tallies.iter().map(|tally| {
        let difference = tally.first_difference.as_deref().unwrap_or("-");
        [
            tally.surface.clone(),
            tally.file.clone(),
            tally.passed.to_string(),
            tally.failed.to_string(),
            tally.unsupported().to_string(),
            difference.trim_end().replace('\n', " "),
        ]
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths = [0, 1, 2, 3, 4].map(width);
    let mut text = String::new();
    for row in &rows {
        for (n, (cell, width)) in row.iter().zip(widths).enumerate() {
            let aligned =
                if n < 2 { format!("{cell:width$}  ") } else { format!("{cell:>width$}  ") };
            text.push_str(&aligned);
        }
        text.push_str(&row[5]);
        text.push('\n');
    }
    text + &unsupported(tallies)
}

/// What needs what is not built yet, with the surfaces of which that is true.
fn unsupported(tallies: &[Tally]) -> String {
    let mut lists: Vec<(&Tally, Vec<&str>)> = Vec::new();
    for tally in tallies.iter().filter(|tally| !tally.unsupported_names.is_empty()) {
        let same = |(other, _): &&mut (&Tally, _)| {
            other.file == tally.file && other.unsupported_names == tally.unsupported_names
        };
        match lists.iter_mut().find(same) {
            Some((_, surfaces)) => surfaces.push(&tally.surface),
            None => lists.push((tally, vec![&tally.surface])),
        }
    }
    let mut text = String::new();
    for (tally, surfaces) in lists {
        let names = tally.unsupported_names.join("\n  ");
        for part in ["\n", &tally.file, ": not built yet in ", &surfaces.join(", "), ":\n  "] {
            text.push_str(part);
        }
        text.push_str(&names);
        text.push('\n');
    }
    text
}
