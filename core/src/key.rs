//! Identities become keys here, and keys find their places in the table.
use core::hash::Hasher as _;
use siphasher::sip128::{Hasher128 as _, SipHasher24};

use crate::policy::Scope;

/// What an identity is the identity of. Equal bytes in two domains have unrelated keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Domain {
    /// Who calls: a user, a client, a token.
    Caller = 1,
    /// What is called.
    Tool = 2,
}

/// Domains of keys that no identity has.
const SHARED_DOMAIN: u8 = 3;
const FINGERPRINT_DOMAIN: u8 = 4;

/// The 128-bit digest of an identity under one gate's secret.
///
/// [`Key::ABSENT`] stands for no identity; no identity's key is equal to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Key {
    /// The first eight bytes of the digest, least significant first.
    pub lo: u64,
    /// The last eight bytes of the digest, least significant first.
    pub hi: u64,
}

impl Key {
    /// No identity.
    pub const ABSENT: Self = Self { lo: 0, hi: 0 };

    /// Whether this stands for no identity.
    pub const fn is_absent(&self) -> bool {
        self.lo == 0 && self.hi == 0
    }
}

/// A gate's secret, by which nobody outside can aim at another caller's place in the table.
#[derive(Clone, Copy)]
pub(crate) struct Secret([u8; 16]);

impl Secret {
    pub(crate) const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// SipHash-2-4-128 (Aumasson and Bernstein, 2012) over a domain byte and the identity.
    pub(crate) fn key(&self, domain: Domain, identity: &[u8]) -> Key {
        self.digest(domain as u8, identity)
    }

    /// The key of a state that all calls share.
    pub(crate) fn shared_key(&self) -> Key {
        self.digest(SHARED_DOMAIN, &[])
    }

    /// Tells gates apart, so that no permit is settled at a gate that didn't give it.
    pub(crate) fn fingerprint(&self) -> u32 {
        (self.digest(FINGERPRINT_DOMAIN, &[]).lo >> 32) as u32
    }

    fn digest(&self, domain: u8, identity: &[u8]) -> Key {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(&[domain]);
        hasher.write(identity);
        let digest = hasher.finish128();
        let key = Key { lo: digest.h1, hi: digest.h2 };
        if key.is_absent() { Key { lo: 1, hi: 0 } } else { key }
    }
}

/// How many bits of an entry's key its key word stores; the others only choose the place.
pub(crate) const STORED_BITS: u32 = 98;

/// With fewer, loom comes to an end.
pub(crate) const GROUP_SLOTS: usize = if cfg!(all(test, loom)) { 2 } else { 8 };
const PLACE_MASK: u64 = GROUP_SLOTS as u64 - 1;

/// Which state of which limit: what the table finds entries by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryKey {
    /// The limit's index over the bits of the key that are stored.
    pub(crate) tag: u128,
    /// The first slots of two different groups.
    pub(crate) groups: [usize; 2],
    /// Where in each group to look first.
    pub(crate) places: [usize; 2],
}

impl EntryKey {
    /// `group_count` is at least 2.
    pub(crate) fn new(limit: u8, scope: Scope, key: Key, group_count: u32) -> Self {
        let hi = key.hi ^ displacement(key.lo, u64::from(limit) << 2 | scope as u64);
        let first = scale(hi >> 32, group_count);
        let other = scale(hi & 0xffff_ffff, group_count.wrapping_sub(1));
        let second = if other < first { other } else { other.wrapping_add(1) };
        let bits = u128::from(hi) << 64 | u128::from(key.lo);
        Self {
            tag: u128::from(limit) << STORED_BITS | bits & ((1 << STORED_BITS) - 1),
            groups: [first.wrapping_mul(GROUP_SLOTS), second.wrapping_mul(GROUP_SLOTS)],
            places: [(key.lo & PLACE_MASK) as usize, (key.lo >> 3 & PLACE_MASK) as usize],
        }
    }
}

/// The key of what two identities have together.
pub(crate) fn pair(first: Key, second: Key) -> Key {
    Key { lo: first.lo ^ second.hi ^ displacement(second.lo, 0), hi: first.hi ^ second.lo }
}

/// What one half of a key displaces the other by: for each salt by something else, so that the states
/// of one caller under several limits lie apart. The keys are random to begin with; what is needed is
/// that the groups of two states don't follow from each other.
fn displacement(half: u64, salt: u64) -> u64 {
    // Odd, without a pattern: the golden ratio and Weyl's sequence of it.
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    const FACTOR: u64 = 0xd6e8_feb8_6659_fd93;
    let salt = salt.wrapping_add(1).wrapping_mul(STEP);
    (half ^ salt).wrapping_mul(FACTOR).rotate_left(32)
}

/// A number below `count` from the 32 bits of `bits`, each about as likely as any other.
fn scale(bits: u64, count: u32) -> usize {
    (bits.wrapping_mul(u64::from(count)) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn a_key_is_siphash_2_4_128_of_the_domain_and_the_identity() {
        // The reference's own key (bytes 0 to 15) and its digest of the one byte 0x00; the domain
        // byte takes that byte's place, so this goes through `digest` itself.
        let secret = Secret::new(core::array::from_fn(|i| i as u8));
        let key = secret.digest(0, &[]);
        let reference = [
            0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44, 0x34, 0x76, 0x59, 0x11, 0x9b, 0x22,
            0xfc, 0x45,
        ];
        assert_eq!(key.lo.to_le_bytes(), reference[..8]);
        assert_eq!(key.hi.to_le_bytes(), reference[8..]);
    }

    #[test]
    fn only_the_key_that_is_all_zero_is_none() {
        let key = |lo, hi| Key { lo, hi };
        assert_eq!(key(0, 0), Key::ABSENT);
        let absent = [(0, 0), (1, 0), (0, 1), (1, 1)].map(|(lo, hi)| key(lo, hi).is_absent());
        assert_eq!(absent, [true, false, false, false]);
    }

    #[test]
    fn domains_and_secrets_keep_equal_bytes_apart() {
        let secret = Secret::new([7; 16]);
        assert_ne!(secret.key(Domain::Caller, b"a"), secret.key(Domain::Tool, b"a"));
        assert_ne!(
            secret.key(Domain::Caller, b"a"),
            Secret::new([8; 16]).key(Domain::Caller, b"a")
        );
        assert_ne!(secret.key(Domain::Caller, b"ab"), secret.key(Domain::Caller, b"a"));
    }

    #[test]
    fn the_two_groups_differ_and_lie_in_the_table() {
        for group_count in [2u32, 3, 5, 200_000] {
            let mut seen = [0u32; 2];
            for n in 0..1000u64 {
                let key = Key { lo: n.wrapping_mul(0x1234_5678_9abc_def1), hi: !n << 40 };
                let entry = EntryKey::new(3, Scope::Caller, key, group_count);
                assert_ne!(entry.groups[0], entry.groups[1]);
                for group in entry.groups {
                    assert_eq!(group % GROUP_SLOTS, 0);
                    assert!(group / GROUP_SLOTS < group_count as usize);
                }
                seen[usize::from(entry.groups[0] > entry.groups[1])] += 1;
            }
            assert!(seen[0] > 100 && seen[1] > 100, "either may be the first: {seen:?}");
        }
    }

    #[test]
    fn limits_and_scopes_place_one_caller_apart() {
        let key = Secret::new([7; 16]).key(Domain::Caller, b"a");
        let here = EntryKey::new(0, Scope::Caller, key, 1 << 20);
        assert_ne!(here.groups, EntryKey::new(1, Scope::Caller, key, 1 << 20).groups);
        assert_ne!(here.tag, EntryKey::new(0, Scope::CallerTool, key, 1 << 20).tag);
    }

    #[test]
    fn a_pair_is_not_the_pair_turned_round() {
        let (a, b) = (Key { lo: 1, hi: 2 }, Key { lo: 3, hi: 4 });
        assert_ne!(pair(a, b), pair(b, a));
    }

    fn tool(n: u32) -> Key {
        Secret::new([7; 16]).key(Domain::Tool, &n.to_le_bytes())
    }

    #[test]
    fn half_of_all_pairs_have_any_bit_set() {
        let caller = Secret::new([7; 16]).key(Domain::Caller, b"a");
        for with in [|_, caller| caller, |tool, _| tool] {
            let mut set = [0; 128];
            for tool in (0..4096).map(tool) {
                let Key { lo, hi } = pair(with(tool, caller), tool);
                for (bit, count) in set.iter_mut().enumerate() {
                    *count += ((u128::from(hi) << 64 | u128::from(lo)) >> bit & 1) as u32;
                }
            }
            assert!(set.iter().all(|count| (1800..2300).contains(count)), "{set:?}");
        }
    }

    #[test]
    fn a_pair_hangs_on_every_bit_of_either_key() {
        let keys = [Secret::new([7; 16]).key(Domain::Caller, b"a"), tool(0)];
        let flipped = |Key { lo, hi }, bit: u32| match bit.checked_sub(64) {
            None => Key { lo: lo ^ 1 << bit, hi },
            Some(bit) => Key { lo, hi: hi ^ 1 << bit },
        };
        for bit in 0..128 {
            assert_ne!(pair(flipped(keys[0], bit), keys[1]), pair(keys[0], keys[1]), "{bit}");
            assert_ne!(pair(keys[0], flipped(keys[1], bit)), pair(keys[0], keys[1]), "{bit}");
        }
    }

    #[test]
    fn a_place_hangs_on_every_bit_of_the_key() {
        let groups = |key| EntryKey::new(5, Scope::Tool, key, u32::MAX).groups;
        let key = tool(0);
        for bit in (0..64).map(|n| 1 << n) {
            assert_ne!(groups(Key { lo: key.lo ^ bit, ..key }), groups(key), "{bit}");
            assert_ne!(groups(Key { hi: key.hi ^ bit, ..key }), groups(key), "{bit}");
        }
    }

    #[test]
    fn who_shares_a_group_under_one_limit_shares_none_under_another() {
        // Of 4096 keys, 131,000 pairs share one of 64 groups, and by chance 2,000 of those another.
        const GROUPS: u32 = 64;
        let keys: Vec<Key> = (0..4096).map(tool).collect();
        let groups = |limit, rank: usize| {
            let of = |&key: &Key| EntryKey::new(limit, Scope::Tool, key, GROUPS).groups[rank];
            keys.iter().map(of).collect::<Vec<_>>()
        };
        for (limit, other) in [(0, 1), (0, 2), (1, 2), (5, 63)] {
            for ranks in [[0, 0], [0, 1], [1, 0], [1, 1]] {
                let (here, there) = (groups(limit, ranks[0]), groups(other, ranks[1]));
                let pairs = || (0..keys.len()).flat_map(|b| (0..b).map(move |a| (a, b)));
                let sharing: Vec<_> = pairs().filter(|&(a, b)| here[a] == here[b]).collect();
                let both = sharing.iter().filter(|&&(a, b)| there[a] == there[b]).count();
                let expected = sharing.len() / GROUPS as usize;
                assert!(both.abs_diff(expected) < expected / 5, "{both}, not {expected}");
            }
        }
    }

    #[test]
    fn the_state_that_all_calls_share_is_not_at_the_same_place_in_two_gates() {
        let shared = [7, 8].map(|byte| Secret::new([byte; 16]).shared_key());
        assert_ne!(shared[0], shared[1]);
        assert!(shared.iter().all(|key| !key.is_absent()));
    }
}
