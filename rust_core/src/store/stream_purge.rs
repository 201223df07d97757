//! Removing those messages of a stream that fit: some at a time, so that nobody waits for all of them.
//!
//! What was there when it began counts: what comes meanwhile stays. A crash leaves those that have not gone yet.

use super::stream::StreamKey;
use super::update::SURPLUS_AT_ONCE;
use super::{Store, space_for};
use crate::error::{Error, Result};
use crate::group::ranges;
use crate::log::Space;
use crate::mailbox::Mailbox;
use crate::nats;
use crate::time::Now;
use crate::wire::op::Op;
use crate::wire::stamp::{Stamp, cause};

/// Most messages that are looked at in one step.
const LOOKED_AT: usize = 4096;

/// Which messages of a stream to remove.
#[derive(Debug, Clone, Copy, Default)]
pub struct StreamPurge<'a> {
    /// Only those whose subject matches.
    pub filter: Option<&'a str>,
    /// Only those before this `msg_id`.
    pub before: Option<u64>,
    /// The newest so many stay.
    pub keep: u64,
}

/// A purge that has begun.
#[derive(Debug)]
pub struct Purging {
    key: StreamKey,
    /// Nothing stays, not even what waits for its time.
    all: bool,
    filter: Option<Box<str>>,
    /// Of those before `end` so many stay yet.
    keep: u64,
    /// The first message that stays.
    end: u64,
    /// The first message that was not looked at.
    next: u64,
    /// How many have gone.
    pub purged: u64,
}

impl Purging {
    fn takes(&self, mailbox: &Mailbox, msg_id: u64) -> bool {
        self.filter.as_ref().is_none_or(|filter| {
            let known = mailbox.subjects().and_then(|known| known.get(known.of(msg_id)?));
            known.is_some_and(|known| nats::matches(filter.as_bytes(), known.subject.as_bytes()))
        })
    }
}

impl Store {
    /// Begins to remove messages of a stream; [`Store::purge_some`] does it.
    pub fn begin_purge(&self, key: StreamKey, purge: StreamPurge<'_>) -> Result<Purging> {
        let slot = self.state.slot_of(key.slot, key.number);
        let mailbox = &slot.ok_or(Error::Internal("the stream of a purge is gone"))?.mailbox;
        let next = match purge.filter {
            // Where it is one subject's, it is known where they begin.
            Some(filter) if !nats::has_wildcard(filter.as_bytes()) => {
                let known = mailbox.subjects().and_then(|subjects| subjects.find(filter));
                known.map_or(mailbox.next_id, |(_, known)| known.first)
            }
            _ => mailbox.oldest().unwrap_or(mailbox.next_id),
        };
        let end = purge.before.unwrap_or(u64::MAX).min(mailbox.next_id);
        let all = purge.filter.is_none() && purge.before.is_none() && purge.keep == 0;
        let filter = purge.filter.map(Into::into);
        Ok(Purging { key, all, filter, keep: purge.keep, end, next, purged: 0 })
    }

    /// Removes some of the messages of a purge; true if there are more. Without conditions all go in one step.
    pub fn purge_some(&mut self, purging: &mut Purging, now: Now) -> Result<bool> {
        self.tick(now);
        let gone = || Error::Internal("the stream of a purge is gone");
        let index = self.stream_slot(purging.key).ok_or_else(gone)?;
        let address = self.address_of(index);
        if purging.all {
            purging.purged += self.purge(&address, now)?;
            return Ok(false);
        }
        let mailbox = &self.state.slot(index).ok_or_else(gone)?.mailbox;
        let mut looked_at = 0;
        for (_, entry) in mailbox.iter_back(purging.end).take(LOOKED_AT) {
            if purging.keep == 0 {
                break;
            }
            looked_at += 1;
            purging.keep -= u64::from(purging.takes(mailbox, entry.msg_id));
            purging.end = entry.msg_id;
        }
        if purging.keep > 0 {
            return Ok(looked_at == LOOKED_AT);
        }
        let mut chosen = Vec::new();
        let mut next = purging.next;
        let mut more = false;
        let ahead = mailbox.iter_from(purging.next).map(|(_, entry)| entry.msg_id);
        for msg_id in ahead.take_while(|id| *id < purging.end) {
            if looked_at == LOOKED_AT || chosen.len() == SURPLUS_AT_ONCE {
                more = true;
                break;
            }
            looked_at += 1;
            next = msg_id + 1;
            if purging.takes(mailbox, msg_id) {
                chosen.push(msg_id);
            }
        }
        if !chosen.is_empty() {
            let mut encoded = Vec::new();
            ranges::encode_ids(chosen.iter().copied(), &mut encoded);
            let stamp = Some(Stamp { time_ms: now.wall_ms, address: &address });
            let op = Op::Removed { stamp, cause: cause::DELETED, ranges: &encoded };
            self.log.reserve(space_for(&[&op]), Space::Reclaim, now.wall_ms)?;
            self.append(index, 0, &op);
            for &msg_id in &chosen {
                self.state.remove_message(index, msg_id);
            }
        }
        purging.next = next;
        purging.purged += chosen.len() as u64;
        Ok(more)
    }
}
