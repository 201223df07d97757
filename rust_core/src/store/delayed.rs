//! Looking at delayed messages, and cancelling them.

use super::fetched::Fetched;
use super::{Store, space_for};
use crate::error::{Error, Result};
use crate::log::{Lsn, Space};
use crate::mailbox::{Delayed, Entry, Level};
use crate::time::Now;
use crate::wire::op::{Message, Op};

impl Store {
    /// Delayed messages with numbers above `after`, in the order they were sent: at most `limit`, and at most
    /// `max_bytes` unless one has more. Their `msg_id` is the delay number, their `create_ms` when they are due.
    pub fn query_delayed(
        &mut self,
        address: &str,
        after: Option<u64>,
        limit: usize,
        max_bytes: u64,
        now: Now,
    ) -> Result<Fetched> {
        self.tick(now);
        let index = self.lookup(address, now)?;
        let from = after.map_or(0, |id| id.saturating_add(1));
        let mut total = 0;
        let wanted: Vec<u64> = self
            .state
            .slot(index)
            .and_then(|slot| slot.mailbox.extras())
            .into_iter()
            .flat_map(|extras| extras.delayed.iter_from(from))
            .filter(|(_, delayed)| !is_over(delayed, now))
            .take(limit)
            .enumerate()
            .take_while(|(at, (_, delayed))| {
                total += u64::from(delayed.len);
                *at == 0 || total <= max_bytes
            })
            .map(|(_, (delay_id, _))| delay_id)
            .collect();
        let mut found = Vec::with_capacity(wanted.len());
        let mut bytes = Vec::new();
        for delay_id in wanted {
            // One that cannot be read is reported and left out.
            let Some(body) = self.read_delayed(index, delay_id)? else { continue };
            let Some(message) = Message::decode(&body) else { continue };
            let level = Level::new(message.level).unwrap_or(Level::NORMAL);
            found.push((delay_id, level, message.create_ms, bytes.len()));
            bytes.extend_from_slice(&body);
        }
        let ends: Vec<usize> =
            found.iter().skip(1).map(|(.., start)| *start).chain([bytes.len()]).collect();
        let mut batch = Fetched::new(bytes, found.len());
        for ((delay_id, level, due_ms, start), end) in found.into_iter().zip(ends) {
            let (at, len, flags) = (Lsn::NONE, 0, 0);
            let entry = Entry { msg_id: delay_id, at, len, create_ms: due_ms, flags };
            batch.push(level, &entry, 0, start, end);
        }
        Ok(batch)
    }

    /// Takes a delayed message back before it is due.
    pub fn cancel_delayed(&mut self, address: &str, delay_id: u64, now: Now) -> Result<()> {
        self.tick(now);
        let index = self.lookup(address, now)?;
        let extras = self.state.slot(index).and_then(|slot| slot.mailbox.extras());
        let delayed = extras.and_then(|extras| extras.delayed.get(delay_id));
        delayed.filter(|delayed| !is_over(delayed, now)).ok_or(Error::MessageNotFound)?;
        if !self.state.in_memory(index) {
            let op = Op::DelayEnded { delay_id };
            self.log.reserve(space_for(&[&op]), Space::Reclaim, now.wall_ms)?;
            self.append(index, 0, &op);
        }
        self.state.end_delay(index, delay_id);
        Ok(())
    }
}

/// Whether its time is over before it is due.
fn is_over(delayed: &Delayed, now: Now) -> bool {
    (1..=now.wall_ms).contains(&delayed.expires_ms)
}
