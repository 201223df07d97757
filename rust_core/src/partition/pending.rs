//! Replies that wait until what they promise is durable.

use std::collections::VecDeque;
use std::num::NonZeroU64;

use hashbrown::HashMap;

use crate::error::Error;
use crate::latency::Latencies;
use crate::log::Lsn;
use crate::protocol::Reply;

/// What replies that wait may take altogether: beyond, nobody's requests are carried out.
const MAX_BYTES: usize = 256 << 20;
/// The same for the larger replies of one connection.
const MAX_OWED_BYTES: usize = 4 << 20;
/// Replies below this size count only altogether.
const SMALL_BYTES: usize = 4 << 10;

/// Replies that are not to leave yet, and those that may.
#[derive(Debug, Default)]
pub struct PendingReplies {
    /// Each with the end of the log it waits for, which never descends. Mostly the next belongs at the end; polls and
    /// control commands may have ended a moment before their reply came here.
    waiting: VecDeque<Waiting>,
    /// They promise nothing.
    ready: VecDeque<Reply>,
    /// Bytes of all of them, and of the larger ones by connection.
    bytes: usize,
    owed: HashMap<u64, usize, foldhash::fast::RandomState>,
    /// The instant at which things happen, in microseconds of the monotonic clock.
    now_us: u64,
    /// How long replies to messages have waited that have left.
    latencies: Latencies,
}

#[derive(Debug)]
struct Waiting {
    end: Lsn,
    /// Since when, if that counts.
    since_us: Option<NonZeroU64>,
    reply: Reply,
}

impl PendingReplies {
    /// What comes now, comes at this instant.
    pub fn set_now(&mut self, mono_us: u64) {
        self.now_us = mono_us;
    }

    /// How long replies waited for the log, of those that were to be true before they left.
    pub fn latencies(&self) -> &Latencies {
        &self.latencies
    }

    /// Whether a connection may ask for more: neither is much owed to it, nor to all together. `most` is what it can
    /// take at once.
    pub fn has_room(&self, cid: u64, most: usize) -> bool {
        self.bytes < MAX_BYTES
            && self.owed.get(&cid).is_none_or(|&bytes| bytes < most.min(MAX_OWED_BYTES))
    }

    /// Whether there is room for replies that nobody asked for just now: those of long polls.
    pub fn is_short(&self) -> bool {
        self.bytes < MAX_BYTES / 4
    }

    /// Whether some reply waits for more to be durable.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// How many replies wait for more than this to be durable, counted up to `most`.
    pub fn waiting_beyond(&self, acknowledged: Lsn, most: usize) -> usize {
        (self.waiting.len() - self.within(acknowledged)).min(most)
    }

    /// How many replies wait for nothing behind `end`.
    fn within(&self, end: Lsn) -> usize {
        self.waiting.partition_point(|waiting| waiting.end <= end)
    }

    /// Holds a reply until the log is durable up to `end`, and counts how long that takes.
    pub fn wait_for(&mut self, end: Lsn, reply: Reply) {
        let since_us = NonZeroU64::new(self.now_us);
        self.hold(Waiting { end, since_us, reply });
    }

    /// The same for the reply to a control command, which was carried out some other time.
    pub fn wait_uncounted(&mut self, end: Lsn, reply: Reply) {
        self.hold(Waiting { end, since_us: None, reply });
    }

    fn hold(&mut self, held: Waiting) {
        self.account(&held.reply, |all, bytes| *all += bytes);
        match self.waiting.back() {
            Some(last) if last.end > held.end => {
                self.waiting.insert(self.within(held.end), held);
            }
            _ => self.waiting.push_back(held),
        }
    }

    /// Takes a reply that promises nothing.
    pub fn let_go(&mut self, reply: Reply) {
        self.account(&reply, |all, bytes| *all += bytes);
        self.ready.push_back(reply);
    }

    /// The next reply that may leave, now that the log is durable up to `acknowledged`.
    pub fn next(&mut self, acknowledged: Lsn) -> Option<Reply> {
        let reply = match (self.ready.pop_front(), self.waiting.front()) {
            (Some(reply), _) => reply,
            (None, Some(first)) if first.end <= acknowledged => {
                let Waiting { since_us, reply, .. } = self.waiting.pop_front()?;
                if let Some(since_us) = since_us {
                    self.latencies.note(self.now_us.saturating_sub(since_us.get()));
                }
                reply
            }
            _ => return None,
        };
        self.account(&reply, |all, bytes| *all -= bytes);
        Some(reply)
    }

    /// Nothing beyond `acknowledged` will be durable: whoever was to be promised that is told why.
    pub fn fail(&mut self, acknowledged: Lsn, error: &Error) {
        for Waiting { reply, .. } in self.waiting.split_off(self.within(acknowledged)) {
            self.account(&reply, |all, bytes| *all -= bytes);
            let reply = reply.failed(&error.into());
            self.let_go(reply);
        }
    }

    fn account(&mut self, reply: &Reply, change: impl Fn(&mut usize, usize)) {
        let bytes = reply.bytes();
        change(&mut self.bytes, bytes);
        if bytes >= SMALL_BYTES {
            let owed = self.owed.entry(reply.cid).or_default();
            change(owed, bytes);
            if *owed == 0 {
                self.owed.remove(&reply.cid);
            }
        }
    }

    /// Panics unless replies are in order and the counters are what they add up to. For tests: it looks at all of them.
    pub fn check_invariants(&self) {
        assert!(self.waiting.iter().is_sorted_by_key(|waiting| waiting.end), "order of replies");
        let (mut bytes, mut owed) =
            (0, HashMap::<u64, usize, foldhash::fast::RandomState>::default());
        for reply in self.waiting.iter().map(|waiting| &waiting.reply).chain(&self.ready) {
            bytes += reply.bytes();
            if reply.bytes() >= SMALL_BYTES {
                *owed.entry(reply.cid).or_default() += reply.bytes();
            }
        }
        assert_eq!(self.bytes, bytes, "bytes of pending replies");
        assert_eq!(self.owed.len(), owed.len(), "connections that are owed much");
        for (cid, bytes) in owed {
            assert_eq!(self.owed.get(&cid), Some(&bytes), "bytes owed to connection {cid}");
        }
    }
}
