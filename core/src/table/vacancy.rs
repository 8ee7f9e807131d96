//! Which slot a new entry takes, or how long until there is one.
use super::word::{Phase, Word};
use super::{Table, candidates};
use crate::key::{EntryKey, GROUP_SLOTS};
use crate::time::{Rest, Time};

/// After this long a thread that claimed a slot is taken for stopped. For liveness only: taking
/// over is safe at any moment.
pub(super) const GRACE_NS: u64 = 1_000_000_000;

/// A slot that may be taken.
pub(super) struct Vacancy {
    pub(super) index: usize,
    pub(super) word: Word,
    /// Since when the entry is at rest that is there.
    pub(super) rest: Option<Rest>,
    /// How far it is from the preferred place.
    away: usize,
    /// For how long nobody will miss it.
    age_ns: u64,
}

impl Vacancy {
    /// Whether it had better be taken than `other`: nothing before an entry at rest, whose caller
    /// may come again, and of those the one that came to rest first.
    fn is_better_than(&self, other: &Self) -> bool {
        self.age_ns > other.age_ns
    }
}

struct Survey {
    /// How many slots can't be taken.
    taken: usize,
    /// How long until the first of those can.
    wait_ns: u64,
    /// The slot that had best be taken.
    vacancy: Option<Vacancy>,
}

impl Survey {
    /// The lower of two is that of the group which a new entry had better go to.
    fn rank(&self) -> (usize, Option<usize>) {
        (self.taken, self.vacancy.as_ref().map(|vacancy| vacancy.away))
    }
}

impl Table<'_> {
    /// The slot that a new entry of `key` goes to: an empty one in the emptier of its groups, or in
    /// either of two that are as full, as near as can be to its preferred place; or else the one
    /// whose entry has been at rest for longest. Where there is none, the nanoseconds until there is.
    pub(super) fn pick(&self, key: &EntryKey, time: Time) -> Result<Vacancy, u64> {
        let [first, second] = key.groups;
        let [first_place, second_place] = key.places;
        let first = self.survey(first, first_place, time);
        let second = self.survey(second, second_place, time);
        let wait_ns = first.wait_ns.min(second.wait_ns);
        let (near, far) =
            if second.rank() < first.rank() { (second, first) } else { (first, second) };
        match (near.vacancy, far.vacancy) {
            (Some(near), Some(far)) => Ok(if far.is_better_than(&near) { far } else { near }),
            (near, far) => near.or(far).ok_or(wait_ns),
        }
    }

    /// How many nanoseconds until a place for `key` is free that none of `others` has.
    pub(crate) fn wait_beside(&self, key: &EntryKey, others: &[EntryKey], time: Time) -> u64 {
        candidates(key)
            .filter(|&index| others.iter().all(|other| self.entry_of(other, index).is_none()))
            .map(|index| self.wait(index, self.state(index), time).0)
            .fold(u64::MAX, u64::min)
            .max(1)
    }

    /// How many nanoseconds slot `index`, in that state, stays taken; and of a live entry, since
    /// when it is at rest, or will be.
    fn wait(&self, index: usize, word: Word, time: Time) -> (u64, Option<Rest>) {
        match word.phase() {
            Phase::Empty => (0, None),
            // A claim from far ahead is as good as an old one: its thread's clock is wrong.
            Phase::Claimed | Phase::Join => {
                let age_ns = time.now_ns.abs_diff(word.payload() as u64);
                (GRACE_NS.saturating_sub(age_ns), None)
            }
            Phase::Live => match self.rest_of(index, word) {
                Some(rest) => (rest.wait_ns(time), Some(rest)),
                // Another entry has just come here.
                None => (1, None),
            },
        }
    }

    /// Looks through one group for a slot that may be taken.
    fn survey(&self, group: usize, place: usize, time: Time) -> Survey {
        let mut survey = Survey { taken: 0, wait_ns: u64::MAX, vacancy: None };
        for n in 0..GROUP_SLOTS {
            let index = group | place ^ n;
            let word = self.state(index);
            let (wait_ns, rest) = self.wait(index, word, time);
            if wait_ns > 0 {
                survey.taken += 1;
                survey.wait_ns = survey.wait_ns.min(wait_ns);
            } else {
                let age_ns = rest.map_or(u64::MAX, |rest| rest.age_ns(time));
                let vacancy = Vacancy { index, word, rest, away: n, age_ns };
                if survey.vacancy.as_ref().is_none_or(|best| vacancy.is_better_than(best)) {
                    survey.vacancy = Some(vacancy);
                }
            }
        }
        survey
    }
}
