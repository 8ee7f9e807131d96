//! A slow, exact gate, to hold the fast one against.
//!
//! Written from DESIGN.md, sections 3 and 4, apart from the engine: it shares no code with it,
//! remembers every state for ever, and reckons by the formulas as they stand. Each kind of limit
//! has a file of its own; this one knows of policies, scopes and permits.
pub mod guard;
pub mod quota;
pub mod rate;
mod words;

use std::collections::BTreeMap;

pub use guard::ConcurrencyLimit;
pub use quota::Quota;
pub use rate::RateLimit;
pub use words::{Call, Decision, Instant, Limit, Outcome, Reason, Rule, Scope, Seeded, Settled};

/// The state of one limit for one caller, or tool, and so on.
#[derive(Clone, Debug)]
enum State {
    Bucket(rate::Bucket),
    Guard(guard::Guard),
    Account(quota::Account),
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
    /// What it holds of each rule.
    holds: Vec<Hold>,
}

#[derive(Clone, Copy)]
enum Hold {
    /// Tokens, or nothing.
    Charge,
    /// A place under the permit's number.
    Place,
    /// Units of the window that ends then.
    Units(i128),
}

struct Configured {
    limit: Limit,
    /// Its last setting that was not off, by which its states are read.
    kept: Limit,
    /// How many times the gate had been reconfigured when this limit last was.
    version: u64,
}

/// The slow gate.
pub struct Reference {
    limits: Vec<Configured>,
    policies: Vec<Vec<Rule>>,
    states: BTreeMap<Place, State>,
    permits: Vec<Permit>,
    version: u64,
    slots: Option<usize>,
    tallies: BTreeMap<(usize, Option<(usize, Reason)>), u64>,
}

impl Reference {
    /// A gate with room for every state.
    pub fn new(limits: &[Limit], policies: &[Vec<Rule>]) -> Self {
        let configured = |&limit| Configured { limit, kept: limit, version: 0 };
        Self {
            limits: limits.iter().map(configured).collect(),
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
    pub fn admit(&mut self, call: &Call, at: Instant) -> (Decision, Option<usize>) {
        let rules = self.policies[call.policy].clone();
        let mut told = Vec::new();
        let mut before: Vec<(Rule, Option<State>)> = Vec::new();
        for (n, rule) in rules.iter().enumerate() {
            let place = Place::of(call, *rule);
            let (mut decision, next) = self.look(call, *rule, at);
            let old = self.states.get(&place).cloned();
            self.states.extend(next.map(|next| (place, next)));
            if let Some(reason) = decision.refused {
                if reason == Reason::TableFull {
                    decision.retry_after_ns = self.wait_beside_own(call, n, at);
                }
                for (rule, old) in before {
                    self.undo(call, rule, old, at);
                }
                *self.tallies.entry((call.policy, Some((n, reason)))).or_default() += 1;
                return (decision, None);
            }
            before.push((*rule, old));
            told.push((decision, self.limit(rule.limit)));
        }
        *self.tallies.entry((call.policy, None)).or_default() += 1;
        let holds = rules.iter().map(|rule| self.hold(Place::of(call, *rule))).collect();
        let (call, version) = (*call, self.version);
        self.permits.push(Permit { call, stamp_ns: at.now_ns, version, settled: false, holds });
        (tightest(&told), Some(self.permits.len() - 1))
    }

    /// Puts a state back as it was; where it was not, it is as good as none. Tokens go back by the
    /// rule for tokens.
    fn undo(&mut self, call: &Call, rule: Rule, old: Option<State>, at: Instant) {
        match self.states.get_mut(&Place::of(call, rule)) {
            Some(State::Bucket(_)) => self.refund(call, rule, at.now_ns, at.now_ns),
            Some(state) => *state = old.unwrap_or_else(|| fresh(&self.limits[rule.limit].kept)),
            None => {}
        }
    }

    fn hold(&self, place: Place) -> Hold {
        match (self.limit(place.limit), self.states.get(&place)) {
            (Limit::Concurrency(_), _) => Hold::Place,
            (Limit::Quota(_), Some(State::Account(account))) => Hold::Units(account.window()),
            _ => Hold::Charge,
        }
    }

    /// What each limit would say to the call, asked alone.
    pub fn peek(&self, call: &Call, at: Instant) -> Vec<Decision> {
        self.policies[call.policy].iter().map(|&rule| self.look(call, rule, at).0).collect()
    }

    /// Ends a call.
    ///
    /// # Panics
    /// Where no permit has that number.
    pub fn settle(&mut self, permit: usize, outcome: Outcome, used: u64, at: Instant) -> Settled {
        let Permit { call, stamp_ns, version, settled, ref holds } = self.permits[permit];
        if settled {
            return Settled::Already;
        }
        let holds = holds.clone();
        self.permits[permit].settled = true;
        let mut settled = Settled::Now;
        for (rule, hold) in self.policies[call.policy].clone().into_iter().zip(holds) {
            let place = Place::of(&call, rule);
            let kept = self.limits[rule.limit].kept;
            match (hold, kept, self.states.get_mut(&place)) {
                (Hold::Charge, ..) => {
                    if outcome == Outcome::Cancelled && self.limits[rule.limit].version <= version {
                        self.refund(&call, rule, stamp_ns, at.now_ns);
                    }
                }
                (Hold::Place, Limit::Concurrency(limit), Some(State::Guard(guard))) => {
                    match guard.settle(&limit, permit, outcome, at.now_ns) {
                        Some(next) => *guard = next,
                        None => settled = Settled::Lapsed,
                    }
                }
                (Hold::Units(window), _, Some(State::Account(account))) => {
                    *account = account.settle(window, call.reserve, outcome, used);
                }
                _ => panic!("what is held is there"),
            }
        }
        settled
    }

    /// Tells a quota what was used before; `None` where the limit is none.
    pub fn seed(&mut self, call: &Call, rule: Rule, used: u64, at: Instant) -> Option<Seeded> {
        let Limit::Quota(quota) = self.limits[rule.limit].kept else { return None };
        let place = Place::of(call, rule);
        let State::Account(account) = self.state(place) else { return None };
        let Some(next) = account.seed(&quota, at.unix_ns, used) else {
            return Some(Seeded::Already);
        };
        if let Some(retry_after_ns) = self.wait_for_slot(place, at) {
            return Some(Seeded::TableFull { retry_after_ns });
        }
        self.states.insert(place, State::Account(next));
        Some(Seeded::Now)
    }

    /// Changes a limit: debts stay (see [`Bucket::follow`]). Whether it
    /// may be changed so: no kind becomes another, and a lease stays what it is.
    pub fn reconfigure(&mut self, limit: usize, to: Limit, now_ns: u64) -> bool {
        let may = match (self.limits[limit].kept, to) {
            (Limit::Concurrency(old), Limit::Concurrency(new)) => old.lease_ns == new.lease_ns,
            (Limit::Off, _)
            | (_, Limit::Off)
            | (Limit::Rate(_), Limit::Rate(_))
            | (Limit::Quota(_), Limit::Quota(_)) => true,
            _ => false,
        };
        if !may {
            return false;
        }
        let old = self.limits[limit].kept;
        self.version += 1;
        let kept = if to == Limit::Off { self.limits[limit].kept } else { to };
        self.limits[limit] = Configured { limit: to, kept, version: self.version };
        for (_, state) in self.states.iter_mut().filter(|(place, _)| place.limit == limit) {
            match (old, to, state) {
                (Limit::Rate(old), Limit::Rate(rate), State::Bucket(bucket)) => {
                    bucket.follow(&old, &rate, now_ns);
                }
                // What is over by the old limit is over.
                (Limit::Concurrency(old), _, State::Guard(guard)) => {
                    *guard = guard.aged(&old, now_ns);
                }
                _ => {}
            }
        }
        true
    }

    /// How many states are not at rest.
    pub fn live(&self, at: Instant) -> usize {
        self.waits(at).count()
    }

    /// How many calls are in flight under a limit.
    pub fn in_flight(&self, limit: usize, now_ns: u64) -> usize {
        let in_flight = |(place, state): (&Place, &State)| match (self.limits[limit].kept, state) {
            (Limit::Concurrency(rule), State::Guard(guard)) if place.limit == limit => {
                guard.in_flight(&rule, now_ns)
            }
            _ => 0,
        };
        self.states.iter().map(in_flight).sum()
    }

    /// How many states were ever made.
    pub fn made(&self) -> usize {
        self.states.len()
    }

    /// Whether the state of one rule of the call is as good as none.
    pub fn is_at_rest(&self, call: &Call, rule: Rule, at: Instant) -> bool {
        self.rests_in_ns(Place::of(call, rule), at).is_none()
    }

    /// How many calls were admitted under a policy.
    pub fn admitted(&self, policy: usize) -> u64 {
        self.tallies.get(&(policy, None)).copied().unwrap_or(0)
    }

    /// How many calls one rule of a policy refused for that reason.
    pub fn refused(&self, policy: usize, rule: usize, reason: Reason) -> u64 {
        self.tallies.get(&(policy, Some((rule, reason)))).copied().unwrap_or(0)
    }

    fn state(&self, place: Place) -> State {
        let none = || fresh(&self.limits[place.limit].kept);
        self.states.get(&place).cloned().unwrap_or_else(none)
    }

    /// How long until a state is at rest, unless it is.
    fn rests_in_ns(&self, place: Place, at: Instant) -> Option<u64> {
        match (self.limits[place.limit].kept, self.state(place)) {
            (Limit::Concurrency(limit), State::Guard(guard)) => {
                guard.rests_in_ns(&limit, at.now_ns)
            }
            (_, State::Bucket(bucket)) => bucket.rests_in_ns(at.now_ns),
            (_, State::Account(account)) => account.rests_in_ns(at.unix_ns),
            (_, State::Guard(_)) => panic!("a limit keeps its kind"),
        }
    }

    /// How long each state that is not at rest takes to be so.
    fn waits(&self, at: Instant) -> impl Iterator<Item = (Place, u64)> {
        let wait = move |&place: &Place| Some((place, self.rests_in_ns(place, at)?));
        self.states.keys().filter_map(wait)
    }

    /// What one rule says, and what the state becomes.
    fn look(&self, call: &Call, rule: Rule, at: Instant) -> (Decision, Option<State>) {
        let (place, by, permit) = (Place::of(call, rule), rule.limit, self.permits.len());
        let (decision, next) = match (self.limits[rule.limit].limit, self.state(place)) {
            (Limit::Off, _) => return (Decision::UNLIMITED, None),
            (Limit::Rate(rate), State::Bucket(mut bucket)) => {
                let decision = bucket.decide(&rate, by, at.now_ns, call.cost);
                let charges = decision.admitted() && call.cost > 0;
                if charges {
                    bucket.charge(&rate, at.now_ns, call.cost);
                }
                (decision, charges.then_some(State::Bucket(bucket)))
            }
            (Limit::Concurrency(limit), State::Guard(guard)) => {
                let (decision, next) = guard.decide(&limit, by, at.now_ns, permit);
                (decision, next.map(State::Guard))
            }
            (Limit::Quota(quota), State::Account(account)) => {
                let (decision, next) = account.decide(&quota, by, at.unix_ns, call.reserve);
                (decision, next.map(State::Account))
            }
            _ => panic!("a limit keeps its kind"),
        };
        match self.wait_for_slot(place, at) {
            Some(wait_ns) if next.is_some() => (Decision::table_full(by, wait_ns), None),
            _ => (decision, next),
        }
    }

    /// Where the state needs a slot and there is none: how long until there is.
    fn wait_for_slot(&self, place: Place, at: Instant) -> Option<u64> {
        let slots = self.slots?;
        if self.rests_in_ns(place, at).is_some() || self.live(at) < slots {
            return None;
        }
        self.waits(at).map(|(_, wait_ns)| wait_ns).min()
    }

    /// How long a call that its first `count` rules have charged waits for a place of others: what
    /// it holds itself, it will hold again.
    fn wait_beside_own(&self, call: &Call, count: usize, at: Instant) -> u64 {
        let charged = |rule: &&Rule| self.limits[rule.limit].limit != Limit::Off;
        let rules = self.policies[call.policy].iter().take(count).filter(charged);
        let own: Vec<Place> = rules.map(|&rule| Place::of(call, rule)).collect();
        let others = self.waits(at).filter(|(place, _)| !own.contains(place));
        others.map(|(_, wait_ns)| wait_ns).min().expect("a full table")
    }

    fn refund(&mut self, call: &Call, rule: Rule, stamp_ns: u64, now_ns: u64) {
        let Limit::Rate(rate) = self.limits[rule.limit].limit else { return };
        if let Some(State::Bucket(bucket)) = self.states.get_mut(&Place::of(call, rule)) {
            bucket.refund(&rate, stamp_ns, now_ns, call.cost);
        }
    }
}

/// A state that is as good as none.
fn fresh(limit: &Limit) -> State {
    match limit {
        Limit::Off | Limit::Rate(_) => State::Bucket(rate::Bucket::default()),
        Limit::Concurrency(_) => State::Guard(guard::Guard::default()),
        Limit::Quota(_) => State::Account(quota::Account::default()),
    }
}

/// Of an admitted call: what is closest to used up, places only where there is nothing else.
fn tightest(told: &[(Decision, Limit)]) -> Decision {
    let is_place = |limit: &Limit| matches!(limit, Limit::Concurrency(_));
    let on = told.iter().filter(|(decision, _)| decision.by.is_some());
    let (places, others): (Vec<_>, Vec<_>) = on.copied().partition(|(_, limit)| is_place(limit));
    let candidates = if others.is_empty() { places } else { others };
    let first = candidates.into_iter().min_by_key(|(decision, _)| decision.remaining);
    first.map_or(Decision::UNLIMITED, |(decision, _)| decision)
}
