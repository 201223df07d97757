//! A consumer as bytes, for checkpoints. Deadlines are volatile and not stored. All numbers are little-endian.
//!
//! | bytes  | field                                                         |
//! | ------ | ------------------------------------------------------------- |
//! | 8      | wall time of creation, in ms                                  |
//! | 8      | it has looked at no message from here on                      |
//! | 8      | deliveries so far                                             |
//! | 8      | the highest number of a message given, or of the one before   |
//! | 8, 8   | floor: delivery, message                                      |
//! | 2, n   | its policy                                                    |
//! | 2, n   | its configuration, UTF-8                                      |
//! | 4      | number of messages that it is given first                     |
//! | 8 × n  | these                                                         |
//! | 4      | number of messages that are out                               |
//! | 20 × n | these: `msg_id` (8), number of the delivery (8), count (4)    |
//! | 4      | number of those that were returned                            |
//! | 16 × n | these: `msg_id` (8), wall time at which it comes back (8)     |
//! | 80     | where it has looked further in some levels than in others, or |
//! |        | has given up messages: the first of each level that it has    |
//! |        | not looked at                                                 |
//! | n      | those that it has given up, if there are any                  |

use std::collections::{BTreeMap, BTreeSet};

use super::{Consumer, ConsumerPolicy, GivenUp, Out, Position};
use crate::mailbox::{ById, LEVELS, Level};
use crate::wire::bytes::{Put, Reader};
use crate::wire::op::MAX_ID;

/// A consumer as it was when the snapshot was taken.
#[derive(Debug)]
pub struct ConsumerSnapshot {
    fixed: Vec<u8>,
    early: BTreeSet<u64>,
    out: ById<Out>,
    returned: BTreeMap<u64, u64>,
    cursors: Option<[u64; LEVELS]>,
    given_up: GivenUp,
}

impl ConsumerSnapshot {
    /// Whether it says of each level how far it had looked.
    pub fn has_cursors(&self) -> bool {
        self.cursors.is_some()
    }

    /// Whether it had given up messages that were still stored.
    pub fn has_given_up(&self) -> bool {
        !self.given_up.is_empty()
    }

    /// Appends the consumer.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.fixed);
        out.put_u32(self.early.len() as u32);
        for msg_id in &self.early {
            out.put_u64(*msg_id);
        }
        out.put_u32(self.out.len() as u32);
        for (msg_id, delivered) in self.out.iter() {
            out.put_u64(msg_id);
            out.put_u64(delivered.number);
            out.put_u32(delivered.count);
        }
        out.put_u32(self.returned.len() as u32);
        for (msg_id, due_ms) in &self.returned {
            out.put_u64(*msg_id);
            out.put_u64(*due_ms);
        }
        for cursor in self.cursors.iter().flatten() {
            out.put_u64(*cursor);
        }
        if self.has_given_up() {
            self.given_up.encode(out);
        }
    }
}

impl Consumer {
    /// The consumer as it is now, to be encoded by another thread. Copies little, however much is out.
    pub fn snapshot(&self) -> ConsumerSnapshot {
        let mut fixed = Vec::new();
        for number in [
            self.created_ms,
            self.next,
            self.given,
            self.last,
            self.floor.consumer,
            self.floor.stream,
        ] {
            fixed.put_u64(number);
        }
        let mut policy = Vec::new();
        self.policy.encode(&mut policy);
        fixed.put_medium(&policy);
        fixed.put_medium(self.config.as_bytes());
        let (early, out, returned) = (self.early.clone(), self.out.clone(), self.returned.clone());
        let given_up = self.given_up.clone();
        // What is given up stands behind them: they tell where it begins.
        let has_cursors = self.is_uneven() || !given_up.is_empty();
        let cursors = has_cursors.then_some(self.cursors);
        ConsumerSnapshot { fixed, early, out, returned, cursors, given_up }
    }

    /// The consumer that these bytes are, all of them. `Ok(None)` if they are not what [`ConsumerSnapshot::encode`]
    /// writes, `Err` names a tag of its policy that this version does not know.
    pub fn decode(bytes: &[u8]) -> Result<Option<Consumer>, u8> {
        let mut from = Reader::new(bytes);
        let Some((numbers, policy, config)) = decode_fixed(&mut from) else { return Ok(None) };
        let Some(policy) = ConsumerPolicy::decode(policy)? else { return Ok(None) };
        let [created_ms, next, given, last, floor_consumer, floor_stream] = numbers;
        let mut consumer = Consumer::new(policy, config, created_ms, next, BTreeSet::new());
        (consumer.given, consumer.last) = (given, last);
        consumer.floor = Position { consumer: floor_consumer, stream: floor_stream };
        let sane = next < MAX_ID && given < MAX_ID && last <= next;
        if !sane || floor_consumer > given || floor_stream > next {
            return Ok(None);
        }
        let read = consumer.decode_lists(&mut from);
        Ok((read.is_some() && from.is_empty()).then_some(consumer))
    }

    fn decode_lists(&mut self, from: &mut Reader<'_>) -> Option<()> {
        for _ in 0..from.u32()? {
            self.early.insert(from.u64().filter(|msg_id| *msg_id < self.next)?);
        }
        for _ in 0..from.u32()? {
            let (msg_id, number, count) = (from.u64()?, from.u64()?, from.u32()?);
            let sane =
                msg_id < self.next && (self.floor.consumer + 1..=self.given).contains(&number);
            if !sane || self.out.get(msg_id).is_some() {
                return None;
            }
            // Whoever opens the store says when it comes back.
            // Its level is read from its stream then, too.
            self.out.insert(msg_id, Out { number, count, level: Level::NORMAL, back: 0 });
            self.redelivered += usize::from(count > 1);
            self.begin_wait(msg_id, 0);
        }
        for _ in 0..from.u32()? {
            let (msg_id, due_ms) = (from.u64()?, from.u64()?);
            self.out.get(msg_id)?;
            self.returned.insert(msg_id, due_ms);
        }
        if !self.out.iter().map(|(_, out)| out.number).is_sorted() {
            self.numbers = Some(self.out.iter().map(|(_, out)| out.number).collect());
        }
        if !from.is_empty() {
            for cursor in &mut self.cursors {
                *cursor = from.u64().filter(|msg_id| *msg_id < MAX_ID)?;
            }
        }
        if !from.is_empty() {
            self.given_up = GivenUp::decode(from, self.next)?;
            let open = self.out.iter().map(|(msg_id, _)| msg_id).chain(self.early());
            if open.into_iter().any(|msg_id| self.given_up.contains(msg_id)) {
                return None;
            }
        }
        Some(())
    }
}

type Fixed<'a> = ([u64; 6], &'a [u8], &'a str);

fn decode_fixed<'a>(from: &mut Reader<'a>) -> Option<Fixed<'a>> {
    let mut numbers = [0; 6];
    for number in &mut numbers {
        *number = from.u64()?;
    }
    Some((numbers, from.medium()?, from.medium_str()?))
}
