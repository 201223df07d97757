//! Runs of consecutive ids: how the log writes down what was delivered and what was acknowledged.
//!
//! Owns the two layouts below and keeps the order it is given. Must not know groups or records. Numbers
//! are little-endian; `len` is at least 1 and `first + len` fits a u64, so `u64::MAX` is not an id.
//!
//! | bytes | deliveries                     |   | bytes | ids               |
//! | ----- | ------------------------------ | - | ----- | ----------------- |
//! | 4     | n                              |   | 4     | n                 |
//! | 17    | n × level u8 (128 more if it   |   |       |                   |
//! |       | was held), count u32,          |   | 12    | n × first u64,    |
//! |       | first u64, len u32             |   |       | len u32           |
//!
//! Decoding checks every run and expands none: a few bytes may stand for more ids than fit in memory,
//! so ask [`DeliveryRanges::total`] or [`IdRanges::total`] before collecting.

use crate::mailbox::Level;
use crate::wire::bytes::Reader;

use super::{Delivered, Pick};

const DELIVERY_RUN_LEN: usize = 17;
const ID_RUN_LEN: usize = 12;
/// In the byte of the level: the member held these, and was given them again as the same delivery.
const AGAIN: u8 = 0x80;

/// Appends deliveries in this order; consecutive ids of the same level and count become one run.
pub fn encode_deliveries(deliveries: impl IntoIterator<Item = Delivered>, out: &mut Vec<u8>) {
    let keyed = deliveries.into_iter().map(|d| ((d.level, d.count), d.msg_id));
    encode_runs(keyed, out, |(level, count), out| {
        out.push(level.number());
        out.extend_from_slice(&count.to_le_bytes());
    });
}

/// Appends what was picked for a member, in this order, as [`encode_deliveries`] does.
pub fn encode_picks(picks: &[Pick], out: &mut Vec<u8>) {
    let keyed = picks.iter().map(|pick| ((pick.level, pick.count, pick.again), pick.entry.msg_id));
    encode_runs(keyed, out, |(level, count, again), out| {
        out.push(level.number() | if again { AGAIN } else { 0 });
        out.extend_from_slice(&count.to_le_bytes());
    });
}

/// Appends ids in this order; consecutive ones become one run.
pub fn encode_ids(ids: impl IntoIterator<Item = u64>, out: &mut Vec<u8>) {
    encode_runs(ids.into_iter().map(|msg_id| ((), msg_id)), out, |(), _| {});
}

/// Consecutive ids as ranges, in the order they are given.
pub fn runs_of(ids: impl IntoIterator<Item = u64>) -> impl Iterator<Item = std::ops::Range<u64>> {
    let mut ids = ids.into_iter().peekable();
    std::iter::from_fn(move || {
        let first = ids.next()?;
        let mut end = first.saturating_add(1);
        while ids.next_if_eq(&end).is_some() {
            end = end.saturating_add(1);
        }
        Some(first..end)
    })
}

/// Bytes of a single encoded id.
pub const ONE_ID: usize = 4 + ID_RUN_LEN;

/// What [`encode_ids`] appends for one id.
pub fn encode_id(msg_id: u64) -> [u8; ONE_ID] {
    let mut encoded = [0; ONE_ID];
    encoded[0] = 1;
    encoded[4..12].copy_from_slice(&msg_id.to_le_bytes());
    encoded[12] = 1;
    encoded
}

fn encode_runs<K: PartialEq + Copy>(
    ids: impl Iterator<Item = (K, u64)>,
    out: &mut Vec<u8>,
    put_key: impl Fn(K, &mut Vec<u8>),
) {
    let count_at = out.len();
    out.extend_from_slice(&[0; 4]);
    let mut runs = 0u32;
    let mut put = |(key, first, len): (K, u64, u32)| {
        put_key(key, out);
        out.extend_from_slice(&first.to_le_bytes());
        out.extend_from_slice(&len.to_le_bytes());
        runs += 1;
    };
    let mut open: Option<(K, u64, u32)> = None;
    for (key, msg_id) in ids {
        match &mut open {
            Some((k, first, len))
                if *k == key
                    && first.checked_add(u64::from(*len)) == Some(msg_id)
                    && *len < u32::MAX =>
            {
                *len += 1;
            }
            _ => {
                if let Some(run) = open.replace((key, msg_id, 1)) {
                    put(run);
                }
            }
        }
    }
    if let Some(run) = open {
        put(run);
    }
    out[count_at..count_at + 4].copy_from_slice(&runs.to_le_bytes());
}

/// The ids of one run.
fn run(first: u64, len: u32) -> Option<std::ops::Range<u64>> {
    let end = first.checked_add(u64::from(len))?;
    (len > 0).then_some(first..end)
}

/// Opens `bytes` as a number of runs and exactly that many of `run_len` bytes.
fn runs(bytes: &[u8], run_len: usize) -> Option<Reader<'_>> {
    let mut input = Reader::new(bytes);
    let count = input.u32()? as usize;
    (input.rest().len() == count.checked_mul(run_len)?).then_some(input)
}

/// Level, count and ids of a run of deliveries.
pub type DeliveryRun = (Level, u32, std::ops::Range<u64>);

/// Deliveries written by [`encode_deliveries`], checked and not expanded.
#[derive(Debug, Clone)]
pub struct DeliveryRanges<'a>(Reader<'a>);

impl<'a> DeliveryRanges<'a> {
    /// Reads all of `bytes`; `None` if they are not what [`encode_deliveries`] writes.
    pub fn decode(bytes: &'a [u8]) -> Option<DeliveryRanges<'a>> {
        let input = runs(bytes, DELIVERY_RUN_LEN)?;
        let mut rest = input;
        while !rest.is_empty() {
            Self::run(&mut rest)?;
        }
        Some(DeliveryRanges(input))
    }

    /// How many deliveries there are.
    pub fn total(&self) -> u64 {
        self.runs().map(|(_, _, ids)| ids.end - ids.start).sum()
    }

    /// The deliveries in the order they were given.
    pub fn iter(&self) -> impl Iterator<Item = Delivered> + use<'a> {
        self.runs().flat_map(|(level, count, ids)| {
            ids.map(move |msg_id| Delivered { level, msg_id, count })
        })
    }

    /// The runs in the order they were given: level, count and ids of each.
    pub fn runs(&self) -> impl Iterator<Item = DeliveryRun> + use<'a> {
        let mut rest = self.0;
        std::iter::from_fn(move || Self::run(&mut rest).map(|(run, _)| run))
    }

    /// The same without what the member held and was only given again.
    pub fn deliveries(&self) -> impl Iterator<Item = DeliveryRun> + use<'a> {
        let mut rest = self.0;
        let runs = std::iter::from_fn(move || Self::run(&mut rest));
        runs.filter_map(|(run, again)| (!again).then_some(run))
    }

    fn run(input: &mut Reader<'_>) -> Option<(DeliveryRun, bool)> {
        let first = input.u8()?;
        let level = Level::new(first & !AGAIN)?;
        let count = input.u32()?;
        Some(((level, count, run(input.u64()?, input.u32()?)?), first & AGAIN != 0))
    }
}

/// Ids written by [`encode_ids`], checked and not expanded.
#[derive(Debug, Clone)]
pub struct IdRanges<'a>(Reader<'a>);

impl<'a> IdRanges<'a> {
    /// Reads all of `bytes`; `None` if they are not what [`encode_ids`] writes.
    pub fn decode(bytes: &'a [u8]) -> Option<IdRanges<'a>> {
        let input = runs(bytes, ID_RUN_LEN)?;
        let mut rest = input;
        while !rest.is_empty() {
            Self::run(&mut rest)?;
        }
        Some(IdRanges(input))
    }

    /// How many ids there are.
    pub fn total(&self) -> u64 {
        self.runs().map(|ids| ids.end - ids.start).sum()
    }

    /// The ids in the order they were given.
    pub fn iter(&self) -> impl Iterator<Item = u64> + use<'a> {
        self.runs().flatten()
    }

    /// The runs in the order they were given.
    pub fn runs(&self) -> impl Iterator<Item = std::ops::Range<u64>> + use<'a> {
        let mut rest = self.0;
        std::iter::from_fn(move || Self::run(&mut rest))
    }

    fn run(input: &mut Reader<'_>) -> Option<std::ops::Range<u64>> {
        run(input.u64()?, input.u32()?)
    }
}
