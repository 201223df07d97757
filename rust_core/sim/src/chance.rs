//! The dice of a crash: a small seeded generator, and what it decides about each unsynced change.
//!
//! The same seed always gives the same crash, so a failing seed can be replayed. Owns no state of
//! the disk.

/// SplitMix64.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, or 0 when `n` is 0.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        // The high half of the product: without the bias of a remainder towards small numbers.
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    pub(crate) fn coin(&mut self) -> bool {
        self.below(2) == 0
    }

    fn quarters(&mut self, n: u64) -> bool {
        self.below(4) < n
    }
}

/// What a crash does to one unsynced change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Kept,
    Torn,
    Dropped,
}

/// How a crash treats a list of unsynced changes.
///
/// The odds are drawn anew for every list, because even odds over a long list would never produce
/// the extremes: nothing lost, everything lost, only the last change lost.
pub(crate) enum Fate {
    /// The changes reached the disk in order up to this one, which is torn.
    InOrder(u64),
    /// The changes reached the disk in any order; odds in quarters.
    AnyOrder { keep: u64, tear: u64 },
}

impl Fate {
    pub(crate) fn draw(rng: &mut Rng, changes: usize) -> Fate {
        if rng.coin() {
            Fate::InOrder(rng.below(changes as u64 + 1))
        } else {
            Fate::AnyOrder { keep: rng.below(5), tear: rng.below(3) }
        }
    }

    pub(crate) fn of(&self, index: usize, rng: &mut Rng) -> Outcome {
        match *self {
            Fate::InOrder(end) => match (index as u64).cmp(&end) {
                std::cmp::Ordering::Less => Outcome::Kept,
                std::cmp::Ordering::Equal => Outcome::Torn,
                std::cmp::Ordering::Greater => Outcome::Dropped,
            },
            Fate::AnyOrder { keep, tear } => {
                if !rng.quarters(keep) {
                    Outcome::Dropped
                } else if rng.quarters(tear) {
                    Outcome::Torn
                } else {
                    Outcome::Kept
                }
            }
        }
    }
}
