//! Looking at stored messages without moving anything, and deleting them.

use super::fetch::is_expired;
use super::fetched::Fetched;
use super::indexes::SlotIx;
use super::{Store, space_for};
use crate::error::{Error, Result};
use crate::group::ranges;
use crate::log::Space;
use crate::mailbox::{Entry, Level};
use crate::time::Now;
use crate::wire::op::Op;
use crate::wire::stamp::{Stamp, cause};

/// Messages read at a time while looking for tags.
const READ_AHEAD: usize = 256;
/// And bytes, unless one message has more.
const READ_BYTES: u64 = 4 << 20;

/// What to look for.
#[derive(Debug, Clone, Default)]
pub struct Query<'a> {
    /// Only the message of this key.
    pub key: Option<&'a str>,
    /// Only messages with one of these tags; empty is any.
    pub tags: &'a [&'a str],
    /// Only messages created at or after this wall time.
    pub since_ms: u64,
    /// Only messages behind this one.
    pub after_id: Option<u64>,
    /// Only messages before this one.
    pub before_id: Option<u64>,
    /// Most messages.
    pub limit: usize,
    /// Most bytes, never below one message.
    pub max_bytes: u64,
    /// The newest that match instead of the oldest; ascending all the same.
    pub newest: bool,
}

impl Store {
    /// Finds messages, in `msg_id` order.
    pub fn query(&mut self, address: &str, query: &Query<'_>, now: Now) -> Result<Fetched> {
        self.tick(now);
        let index = self.lookup(address, now)?;
        loop {
            match self.find(index, query, now) {
                Err(super::fetch::Unread::Damaged) => {}
                Err(super::fetch::Unread::Failed(e)) => return Err(e),
                Ok(batch) => return Ok(batch),
            }
        }
    }

    /// The message of each key, alone in its batch, which is empty for a key that has none. Stops behind the message that
    /// exceeds `max_bytes`, so that the list may be shorter.
    pub fn messages_of(
        &mut self,
        address: &str,
        keys: &[String],
        max_bytes: u64,
        now: Now,
    ) -> Result<Vec<Fetched>> {
        let (mut found, mut bytes) = (Vec::with_capacity(keys.len()), 0);
        for key in keys {
            let query = Query { key: Some(key), limit: 1, max_bytes, ..Query::default() };
            let batch = self.query(address, &query, now)?;
            bytes += batch.iter().map(|(_, message)| message.payload.len() as u64).sum::<u64>();
            found.push(batch);
            if bytes > max_bytes {
                break;
            }
        }
        Ok(found)
    }

    fn find(
        &mut self,
        index: SlotIx,
        query: &Query<'_>,
        now: Now,
    ) -> std::result::Result<Fetched, super::fetch::Unread> {
        let mut found: Vec<(Level, Entry, u32)> = Vec::new();
        let mut bytes = 0;
        let mut position = None;
        'pages: while found.len() < query.limit {
            let page = self.candidates(index, query, position, now);
            let Some((_, last, _)) = page.last() else { break };
            position = Some(last.msg_id);
            let matching = self.with_tags(index, &page, query.tags)?;
            for pick in matching {
                bytes += u64::from(pick.1.len);
                let too_much = bytes > query.max_bytes && !found.is_empty();
                if found.len() >= query.limit || too_much {
                    break 'pages;
                }
                found.push(pick);
            }
        }
        if query.newest {
            found.reverse();
        }
        self.read(index, &found)
    }

    /// The next messages that match all but the tags, behind `position` in search order.
    fn candidates(
        &self,
        index: SlotIx,
        query: &Query<'_>,
        position: Option<u64>,
        now: Now,
    ) -> Vec<(Level, Entry, u32)> {
        let slot = self.state.in_use(index);
        let mailbox = &slot.mailbox;
        let after = query.after_id.map_or(0, |id| id.saturating_add(1));
        let before = query.before_id.unwrap_or(u64::MAX);
        let wanted = |(_, entry): &(Level, Entry)| {
            entry.create_ms >= query.since_ms
                && (after..before).contains(&entry.msg_id)
                && !is_expired(mailbox, entry, now)
        };
        let page = query.limit.clamp(1, READ_AHEAD);
        let picks: Vec<(Level, Entry)> = if let Some(key) = query.key {
            let msg_id = mailbox.extras().and_then(|s| s.keys.get(key)).copied();
            let message = msg_id.filter(|_| position.is_none()).and_then(|id| mailbox.get(id));
            message.into_iter().filter(wanted).collect()
        } else if query.newest {
            let end = position.unwrap_or(before);
            let older = mailbox.iter_back(end).take_while(|(_, entry)| entry.msg_id >= after);
            older.filter(wanted).take(page).collect()
        } else {
            let first = mailbox.start_since(query.since_ms).into_iter().min().unwrap_or(0);
            let from = position.map_or(after.max(first), |id| id + 1);
            let older = mailbox.iter_from(from).take_while(|(_, entry)| entry.msg_id < before);
            older.filter(wanted).take(page).collect()
        };
        let mut bytes = 0;
        let within = picks.into_iter().enumerate().take_while(|(at, (_, entry))| {
            bytes += u64::from(entry.len);
            *at == 0 || bytes <= READ_BYTES
        });
        within.map(|(_, (level, entry))| (level, entry, 0)).collect()
    }

    fn with_tags(
        &mut self,
        index: SlotIx,
        page: &[(Level, Entry, u32)],
        tags: &[&str],
    ) -> std::result::Result<Vec<(Level, Entry, u32)>, super::fetch::Unread> {
        if tags.is_empty() {
            return Ok(page.to_vec());
        }
        let batch = self.read(index, page)?;
        let has_tag = |of: &str| of.split(',').any(|tag| tags.contains(&tag.trim()));
        let matching = batch.iter().zip(page).filter(|((_, message), _)| has_tag(message.tags));
        Ok(matching.map(|(_, pick)| *pick).collect())
    }

    /// Refuses a message that is not there.
    pub(super) fn check_stored(&self, index: SlotIx, msg_id: u64, now: Now) -> Result<()> {
        let stored = self.state.slot(index).and_then(|slot| {
            let (_, entry) = slot.mailbox.get(msg_id)?;
            (!is_expired(&slot.mailbox, &entry, now)).then_some(())
        });
        stored.ok_or(Error::MessageNotFound)
    }

    /// Deletes a message.
    pub fn delete(&mut self, address: &str, msg_id: u64, now: Now) -> Result<()> {
        self.tick(now);
        let index = self.lookup(address, now)?;
        self.check_stored(index, msg_id, now)?;
        if !self.state.in_memory(index) {
            let mut ranges = Vec::new();
            ranges::encode_ids([msg_id], &mut ranges);
            let stamp = Some(Stamp { time_ms: now.wall_ms, address });
            let op = Op::Removed { stamp, cause: cause::DELETED, ranges: &ranges };
            self.log.reserve(space_for(&[&op]), Space::Reclaim, now.wall_ms)?;
            self.append(index, 0, &op);
        }
        self.state.remove_message(index, msg_id);
        // With max_ack_pending, room for one is room for another.
        self.mark_ready(index);
        Ok(())
    }
}
