//! Messages that a consumer has given up: they were delivered as often as allowed, and nobody has done with them.
//!
//! Owns which they are and which of them were delivered more than once, in blocks of 64 neighbours: so any number of them
//! costs little, and a copy next to nothing. Must not know what is stored; whoever removes a message says so here, and so
//! no more is remembered than that. All numbers are little-endian:
//!
//! | bytes  | field                                                                             |
//! | ------ | --------------------------------------------------------------------------------- |
//! | 4      | number of blocks                                                                  |
//! | 24 × n | these: first `msg_id`, a multiple of 64 (8); which of the 64 from there on, the   |
//! |        | lowest bit first (8); which of these were delivered more than once (8)            |

use crate::mailbox::ById;
use crate::wire::bytes::{Put, Reader};

/// Messages of a block.
const BLOCK: u64 = u64::BITS as u64;

/// The messages of a block: a bit for each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Block {
    given_up: u64,
    /// Those of them that were delivered more than once.
    redelivered: u64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct GivenUp {
    /// By the first message of each; none is empty.
    blocks: ById<Block>,
    redelivered: usize,
}

impl GivenUp {
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    pub fn contains(&self, msg_id: u64) -> bool {
        let (first, bit) = place(msg_id);
        self.blocks.get(first).is_some_and(|block| block.given_up & bit != 0)
    }

    /// How many of them were delivered more than once.
    pub fn redelivered(&self) -> usize {
        self.redelivered
    }

    /// The messages among these, in their order.
    pub fn within(&self, first: u64, len: u64) -> impl Iterator<Item = u64> + '_ {
        let end = first.saturating_add(len);
        let blocks = self.blocks.iter_from(place(first).0).take_while(move |(at, _)| *at < end);
        let all = blocks.flat_map(|(at, block)| bits(block.given_up).map(move |bit| at + bit));
        all.filter(move |msg_id| (first..end).contains(msg_id))
    }

    pub fn insert(&mut self, msg_id: u64, redelivered: bool) {
        let (first, bit) = place(msg_id);
        let mut block = self.blocks.get(first).copied().unwrap_or_default();
        debug_assert!(block.given_up & bit == 0, "{msg_id} is given up twice");
        block.given_up |= bit;
        if redelivered {
            block.redelivered |= bit;
            self.redelivered += 1;
        }
        self.blocks.insert(first, block);
    }

    /// Somebody has done with a message after all, or it has gone; false if it was not given up.
    pub fn remove(&mut self, msg_id: u64) -> bool {
        let (first, bit) = place(msg_id);
        let Some(mut block) = self.blocks.get(first).copied().filter(|one| one.given_up & bit != 0)
        else {
            return false;
        };
        self.redelivered -= usize::from(block.redelivered & bit != 0);
        block.given_up &= !bit;
        block.redelivered &= !bit;
        if block.given_up == 0 {
            self.blocks.remove(first);
        } else {
            self.blocks.insert(first, block);
        }
        true
    }

    /// Forgets the messages of which this is not so.
    pub fn retain(&mut self, is_kept: impl Fn(u64) -> bool) {
        let lost: Vec<u64> = self.within(0, u64::MAX).filter(|msg_id| !is_kept(*msg_id)).collect();
        for msg_id in lost {
            self.remove(msg_id);
        }
    }

    /// How much a copy copies.
    pub fn unshared(&self) -> usize {
        self.blocks.unshared()
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.blocks.len() as u32);
        for (first, block) in self.blocks.iter() {
            out.put_u64(first);
            out.put_u64(block.given_up);
            out.put_u64(block.redelivered);
        }
    }

    /// Reads what [`GivenUp::encode`] writes; `None` if that is none of it, or a message is not before `end`.
    pub fn decode(from: &mut Reader<'_>, end: u64) -> Option<GivenUp> {
        let mut all = GivenUp::default();
        let mut least = 0;
        for _ in 0..from.u32()? {
            let (first, given_up, redelivered) = (from.u64()?, from.u64()?, from.u64()?);
            let last = first.checked_add(u64::from(given_up.checked_ilog2()?))?;
            let sane = first >= least && first % BLOCK == 0 && redelivered & !given_up == 0;
            if !sane || last >= end {
                return None;
            }
            least = first + BLOCK;
            all.redelivered += redelivered.count_ones() as usize;
            all.blocks.insert(first, Block { given_up, redelivered });
        }
        Some(all)
    }

    /// Panics unless its blocks and its counter agree. For tests.
    pub fn check_invariants(&self) {
        let mut redelivered = 0;
        for (first, block) in self.blocks.iter() {
            assert!(first % BLOCK == 0 && block.given_up != 0, "a block that begins at {first}");
            assert_eq!(block.redelivered & !block.given_up, 0, "{first}: delivered, not given up");
            redelivered += block.redelivered.count_ones() as usize;
        }
        assert_eq!(self.redelivered, redelivered, "messages given up that were delivered again");
    }
}

/// The first message of a block, and the bit of this one in it.
fn place(msg_id: u64) -> (u64, u64) {
    (msg_id - msg_id % BLOCK, 1 << (msg_id % BLOCK))
}

/// The numbers of the bits that are set, lowest first.
fn bits(mut left: u64) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        let bit = left.trailing_zeros();
        left &= left.wrapping_sub(1);
        (bit < u64::BITS).then_some(bit.into())
    })
}
