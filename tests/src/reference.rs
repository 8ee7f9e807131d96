//! A slow, exact gate, to hold the fast one against.
//!
//! Written from DESIGN.md, sections 3 and 4, apart from the engine: it shares no code with it,
//! remembers every state for ever, and reckons by the formulas as they stand. Each kind of limit
//! has a file of its own; this one knows of policies, scopes and permits.
pub mod rate;

use std::collections::BTreeMap;

pub use rate::RateLimit;

/// One limit of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Admits everything and keeps nothing.
    Off,
    /// A token bucket.
    Rate(RateLimit),
}

/// Whose state a limit keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// One state for each caller.
    Caller,
    /// One state for each tool.
    Tool,
    /// One state for each caller and tool.
    CallerTool,
    /// One state for all calls.
    Shared,
}

/// One step of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The limit's index.
    pub limit: usize,
    /// Whose state it keeps.
    pub scope: Scope,
}

/// A call to be decided. Callers and tools are numbers here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The policy's index.
    pub policy: usize,
    /// Who calls.
    pub caller: u32,
    /// What is called.
    pub tool: u32,
    /// Tokens to take from each rate limit.
    pub cost: u64,
}

/// Why a call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Too few tokens are left.
    Rate,
    /// The cost is above what the limit can ever hold.
    Never,
    /// There is no place for the state.
    TableFull,
}

/// What was decided about a call, or would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Why it is refused, if it is.
    pub refused: Option<Reason>,
    /// The limit that refused, or that has the fewest tokens left.
    pub by: Option<usize>,
    /// How long until it would be admitted.
    pub retry_after_ns: u64,
    /// What the limit holds.
    pub limit: u64,
    /// What is left of that.
    pub remaining: u64,
    /// How long until all of it is back.
    pub reset_after_ns: u64,
}

impl Decision {
    /// Of a limit that is off.
    pub const UNLIMITED: Self = Self {
        refused: None,
        by: None,
        retry_after_ns: 0,
        limit: u64::MAX,
        remaining: u64::MAX,
        reset_after_ns: 0,
    };

    fn table_full(limit: usize, retry_after_ns: u64) -> Self {
        Self {
            refused: Some(Reason::TableFull),
            by: Some(limit),
            retry_after_ns,
            limit: 0,
            remaining: 0,
            reset_after_ns: 0,
        }
    }

    /// Whether the call may run.
    pub fn admitted(&self) -> bool {
        self.refused.is_none()
    }
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It succeeded.
    Success,
    /// It failed.
    Failure,
    /// Its client went away.
    Abandoned,
    /// It never ran.
    Cancelled,
}

/// Which state of which limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    limit: usize,
    scope: Scope,
    caller: Option<u32>,
    tool: Option<u32>,
}

impl Place {
    fn of(call: &Call, rule: Rule) -> Self {
        let (caller, tool) = match rule.scope {
            Scope::Caller => (Some(call.caller), None),
            Scope::Tool => (None, Some(call.tool)),
            Scope::CallerTool => (Some(call.caller), Some(call.tool)),
            Scope::Shared => (None, None),
        };
        Self { limit: rule.limit, scope: rule.scope, caller, tool }
    }
}

struct Permit {
    call: Call,
    stamp_ns: u64,
    /// How many times the gate had been reconfigured.
    version: u64,
    settled: bool,
}

struct Configured {
    limit: Limit,
    /// How many times the gate had been reconfigured when this limit last was.
    version: u64,
}

/// The slow gate.
pub struct Reference {
    limits: Vec<Configured>,
    policies: Vec<Vec<Rule>>,
    states: BTreeMap<Place, rate::Bucket>,
    permits: Vec<Permit>,
    version: u64,
    slots: Option<usize>,
    tallies: BTreeMap<(usize, Option<(usize, Reason)>), u64>,
}

impl Reference {
    /// A gate with room for every state.
    pub fn new(limits: &[Limit], policies: &[Vec<Rule>]) -> Self {
        Self {
            limits: limits.iter().map(|&limit| Configured { limit, version: 0 }).collect(),
            policies: policies.to_vec(),
            states: BTreeMap::new(),
            permits: Vec::new(),
            version: 0,
            slots: None,
            tallies: BTreeMap::new(),
        }
    }

    /// A gate with so many slots, each of which is as good as another for any state, that is only
    /// asked at times that never go back.
    pub fn with_slots(slots: usize, limits: &[Limit], policies: &[Vec<Rule>]) -> Self {
        Self { slots: Some(slots), ..Self::new(limits, policies) }
    }

    /// The limit of this index, as it is now.
    pub fn limit(&self, limit: usize) -> Limit {
        self.limits[limit].limit
    }

    /// How many limits there are.
    pub fn limit_count(&self) -> usize {
        self.limits.len()
    }

    /// How many policies there are.
    pub fn policy_count(&self) -> usize {
        self.policies.len()
    }

    /// The rules of the policy of this index.
    pub fn rules(&self, policy: usize) -> &[Rule] {
        &self.policies[policy]
    }

    /// Decides a call; also the number of its permit where it is admitted.
    ///
    /// # Panics
    /// Where the gate has no such policy.
    pub fn admit(&mut self, call: &Call, now_ns: u64) -> (Decision, Option<usize>) {
        let mut tightest: Option<Decision> = None;
        for (n, rule) in self.policies[call.policy].clone().into_iter().enumerate() {
            let mut decision = self.look(call, rule, now_ns);
            if let Some(reason) = decision.refused {
                if reason == Reason::TableFull {
                    decision.retry_after_ns = self.wait_beside_own(call, n, now_ns);
                }
                for rule in self.policies[call.policy].clone().into_iter().take(n) {
                    self.refund(call, rule, now_ns, now_ns);
                }
                *self.tallies.entry((call.policy, Some((n, reason)))).or_default() += 1;
                return (decision, None);
            }
            self.charge(call, rule, now_ns);
            let tighter = |t: &Decision| t.by.is_none() || decision.remaining < t.remaining;
            if tightest.as_ref().is_none_or(tighter) {
                tightest = Some(decision);
            }
        }
        *self.tallies.entry((call.policy, None)).or_default() += 1;
        let permit =
            Permit { call: *call, stamp_ns: now_ns, version: self.version, settled: false };
        self.permits.push(permit);
        (tightest.expect("a policy has a rule"), Some(self.permits.len() - 1))
    }

    /// What each limit would say to the call, asked alone.
    pub fn peek(&self, call: &Call, now_ns: u64) -> Vec<Decision> {
        self.policies[call.policy].iter().map(|&rule| self.look(call, rule, now_ns)).collect()
    }

    /// Ends a call; whether this was the first time.
    pub fn settle(&mut self, permit: usize, outcome: Outcome, now_ns: u64) -> bool {
        let Permit { call, stamp_ns, version, settled } = self.permits[permit];
        if settled {
            return false;
        }
        self.permits[permit].settled = true;
        if outcome == Outcome::Cancelled {
            for rule in self.policies[call.policy].clone() {
                if self.limits[rule.limit].version <= version {
                    self.refund(&call, rule, stamp_ns, now_ns);
                }
            }
        }
        true
    }

    /// Changes a limit: debts stay, but none is deeper than the new limit can express.
    pub fn reconfigure(&mut self, limit: usize, to: Limit, now_ns: u64) {
        self.version += 1;
        self.limits[limit] = Configured { limit: to, version: self.version };
        if let Limit::Rate(rate) = to {
            for (_, bucket) in self.states.iter_mut().filter(|(place, _)| place.limit == limit) {
                bucket.clamp(&rate, now_ns);
            }
        }
    }

    /// How many states are not at rest.
    pub fn live(&self, now_ns: u64) -> usize {
        self.states.values().filter(|bucket| !bucket.is_at_rest(now_ns)).count()
    }

    /// How many states were ever made.
    pub fn made(&self) -> usize {
        self.states.len()
    }

    /// Whether the state of one rule of the call is as good as none.
    pub fn is_at_rest(&self, call: &Call, rule: Rule, now_ns: u64) -> bool {
        self.bucket(Place::of(call, rule)).is_at_rest(now_ns)
    }

    /// How many calls were admitted under a policy.
    pub fn admitted(&self, policy: usize) -> u64 {
        self.tallies.get(&(policy, None)).copied().unwrap_or(0)
    }

    /// How many calls one rule of a policy refused for that reason.
    pub fn refused(&self, policy: usize, rule: usize, reason: Reason) -> u64 {
        self.tallies.get(&(policy, Some((rule, reason)))).copied().unwrap_or(0)
    }

    fn bucket(&self, place: Place) -> rate::Bucket {
        self.states.get(&place).copied().unwrap_or_default()
    }

    fn look(&self, call: &Call, rule: Rule, now_ns: u64) -> Decision {
        let Limit::Rate(rate) = self.limits[rule.limit].limit else { return Decision::UNLIMITED };
        let place = Place::of(call, rule);
        let decision = self.bucket(place).decide(&rate, rule.limit, now_ns, call.cost);
        match self.wait_for_slot(place, now_ns) {
            Some(wait_ns) if decision.admitted() && call.cost > 0 => {
                Decision::table_full(rule.limit, wait_ns)
            }
            _ => decision,
        }
    }

    /// Where the state needs a slot and there is none: how long until there is.
    fn wait_for_slot(&self, place: Place, now_ns: u64) -> Option<u64> {
        let slots = self.slots?;
        if !self.bucket(place).is_at_rest(now_ns) || self.live(now_ns) < slots {
            return None;
        }
        self.states.values().filter_map(|bucket| bucket.rests_in_ns(now_ns)).min()
    }

    /// How long a call that its first `count` rules have charged waits for a place of others: what
    /// it holds itself, it will hold again.
    fn wait_beside_own(&self, call: &Call, count: usize, now_ns: u64) -> u64 {
        let charged = |rule: &&Rule| self.limits[rule.limit].limit != Limit::Off;
        let rules = self.policies[call.policy].iter().take(count).filter(charged);
        let own: Vec<Place> = rules.map(|&rule| Place::of(call, rule)).collect();
        let others = self.states.iter().filter(|(place, _)| !own.contains(place));
        others.filter_map(|(_, bucket)| bucket.rests_in_ns(now_ns)).min().expect("a full table")
    }

    fn charge(&mut self, call: &Call, rule: Rule, now_ns: u64) {
        let Limit::Rate(rate) = self.limits[rule.limit].limit else { return };
        if call.cost > 0 {
            self.states.entry(Place::of(call, rule)).or_default().charge(&rate, now_ns, call.cost);
        }
    }

    fn refund(&mut self, call: &Call, rule: Rule, stamp_ns: u64, now_ns: u64) {
        let Limit::Rate(rate) = self.limits[rule.limit].limit else { return };
        if let Some(bucket) = self.states.get_mut(&Place::of(call, rule)) {
            bucket.refund(&rate, stamp_ns, now_ns, call.cost);
        }
    }
}
