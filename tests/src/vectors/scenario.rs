//! A scenario as it stands in a file.
use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, de};

/// Every integer is a decimal string.
fn number<'de, D: Deserializer<'de>, N: FromStr<Err: Display>>(from: D) -> Result<N, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map_err(|e| de::Error::custom(format!("{text:?}: {e}")))
}

fn some_number<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    number(from).map(Some)
}

fn some_numbers<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<u64>>, D::Error> {
    let texts = Vec::<String>::deserialize(from)?;
    texts.iter().map(|t| t.parse().map_err(de::Error::custom)).collect::<Result<_, _>>().map(Some)
}

/// One gate, and what is done with it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What it shows.
    pub name: String,
    /// The report it comes from.
    pub source: String,
    /// The gate's limits.
    pub limits: Vec<LimitSpec>,
    /// By name: pairs of a limit's index and a scope.
    policies: BTreeMap<String, Vec<(String, String)>>,
    /// Wall time at `at` = 0.
    #[serde(deserialize_with = "number")]
    pub unix_base_ns: u64,
    /// Making the gate fails and names this field.
    pub config_error: Option<String>,
    /// What is done, one after the other.
    #[serde(default)]
    pub steps: Vec<Step>,
}

impl Scenario {
    /// The policies in the order of their names.
    ///
    /// # Errors
    /// Where an index is none.
    pub fn policies(&self) -> Result<Vec<Vec<(u32, String)>>, String> {
        let rule = |(limit, scope): &'_ (String, String)| match limit.parse() {
            Ok(limit) => Ok((limit, scope.clone())),
            Err(e) => Err(format!("limit {limit:?} of a policy: {e}")),
        };
        self.policies.values().map(|rules| rules.iter().map(rule).collect()).collect()
    }

    /// The index of the policy that a step names.
    ///
    /// # Errors
    /// Where there is none of that name.
    pub fn policy_of(&self, step: &Step) -> Result<u32, String> {
        let position = self.policies.keys().position(|name| *name == step.policy);
        position.map(|n| n as u32).ok_or_else(|| format!("no policy {:?}", step.policy))
    }

    /// The permits that steps name, in the order of their names.
    pub fn permit_names(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.steps.iter().filter_map(|s| s.permit.as_deref()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// A limit of any kind; what is absent is 0 or false.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "named as in the configuration")]
pub struct LimitSpec {
    pub kind: String,
    #[serde(default, deserialize_with = "number")]
    pub count: u64,
    #[serde(default, deserialize_with = "number")]
    pub period_ns: u64,
    #[serde(default, deserialize_with = "number")]
    pub burst: u64,
    #[serde(default, deserialize_with = "number")]
    pub max_in_flight: u64,
    #[serde(default, deserialize_with = "number")]
    pub lease_ns: u64,
    #[serde(default, deserialize_with = "number")]
    pub reject_trip: u64,
    #[serde(default, deserialize_with = "number")]
    pub failure_trip: u64,
    #[serde(default, deserialize_with = "number")]
    pub cooldown_ns: u64,
    #[serde(default, deserialize_with = "number")]
    pub half_open_probes: u64,
    #[serde(default, deserialize_with = "number")]
    pub limit: u64,
    #[serde(default, deserialize_with = "number")]
    pub period_s: u64,
    #[serde(default, deserialize_with = "number")]
    pub anchor_unix_s: i64,
    #[serde(default)]
    pub must_seed: bool,
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// Decides calls.
    Admit,
    /// Ends one.
    Settle,
    /// Tells a quota what was used.
    Seed,
}

fn alice() -> String {
    "alice".into()
}

fn default_policy() -> String {
    "default".into()
}

fn one() -> u64 {
    1
}

/// One step of a scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "named as in the file")]
pub struct Step {
    pub op: Op,
    #[serde(deserialize_with = "number")]
    pub at: u64,
    #[serde(default, deserialize_with = "some_numbers")]
    pub ats: Option<Vec<u64>>,
    #[serde(default = "one", deserialize_with = "number")]
    pub repeat: u64,
    #[serde(default, deserialize_with = "number")]
    pub every_ns: u64,
    #[serde(default = "default_policy")]
    pub policy: String,
    #[serde(default = "alice")]
    pub caller: String,
    #[serde(default)]
    pub tool: String,
    #[serde(default = "one", deserialize_with = "number")]
    pub cost: u64,
    #[serde(default, deserialize_with = "number")]
    pub reserve: u64,
    pub permit: Option<String>,
    pub outcome: Option<String>,
    #[serde(default, deserialize_with = "number")]
    pub actual: u64,
    #[serde(default, deserialize_with = "some_number")]
    pub limit: Option<u64>,
    #[serde(default, deserialize_with = "some_number")]
    pub used: Option<u64>,
    pub expect: Option<Expectation>,
}

impl Step {
    /// The times of the step's calls.
    pub fn times(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.repeat).map(|n| match self.ats.as_deref() {
            Some(ats) => ats[n as usize % ats.len()],
            None => self.at + n * self.every_ns,
        })
    }
}

/// What a step must come to. What is absent may be anything.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "named as in the file")]
pub struct Expectation {
    pub verdict: Option<String>,
    pub reason: Option<String>,
    #[serde(default, deserialize_with = "some_number")]
    pub by: Option<u64>,
    #[serde(default, deserialize_with = "some_number")]
    pub retry_after_ns: Option<u64>,
    #[serde(default, deserialize_with = "some_number")]
    pub limit: Option<u64>,
    #[serde(default, deserialize_with = "some_number")]
    pub remaining: Option<u64>,
    #[serde(default, deserialize_with = "some_number")]
    pub reset_after_ns: Option<u64>,
    #[serde(default, deserialize_with = "some_number")]
    pub admitted: Option<u64>,
    pub last: Option<Box<Expectation>>,
    pub status: Option<String>,
    pub seeded: Option<bool>,
}
