//! Invariants of a store between two commands. For tests: it looks at everything.

use std::collections::{BTreeMap, BTreeSet};

use super::Store;
use super::consumers::Consumers;
use super::indexes::{GroupIx, SlotIx};
use super::slot::{GroupSlot, Slot};
use super::state::{State, counted_bytes};
use super::timers::Timers;
use crate::group::Member;
use crate::log::{Log, Lsn};
use crate::mailbox::Mailbox;

impl Store {
    /// Panics, with the name of what is wrong, unless everything that is counted, listed or timed is what there is.
    pub fn check_invariants(&self) {
        self.log.check_invariants();
        self.state.check_invariants(&self.log, self.is_follower());
        self.waiters.check_invariants(&self.state);
        self.readers.check_invariants(&self.state);
        for (index, slot) in self.state.slots() {
            for (at, group) in slot.groups_by_place() {
                self.check_holders(index, slot, at, group);
            }
        }
        self.check_waits_are_in_vain();
    }

    /// What a connection holds must go back when it closes.
    fn check_holders(&self, index: SlotIx, slot: &Slot, at: GroupIx, group: &GroupSlot) {
        for (msg_id, conn, member) in group.group.out_with_connections() {
            if *member == (Member::Conn { epoch: self.state.epoch, conn }) {
                let noted = self.waiters.is_holder(conn, index, slot.mailbox.number, at);
                assert!(noted, "connection {conn} would keep {msg_id} after its end");
            }
        }
    }
}

impl State {
    /// Panics unless mailboxes, groups, deadlines and counters agree with each other and with the log.
    fn check_invariants(&self, log: &Log, is_follower: bool) {
        self.check_slots();
        let consumers = self.slots().filter(|_| !is_follower).filter_map(|(_, s)| s.consumers());
        consumers.for_each(Consumers::check_timers);
        let mut live: BTreeMap<u32, u64> = BTreeMap::new();
        let mut count = |at: Lsn, len: u32| {
            if at != Lsn::NONE {
                log.check_place(at, len);
                *live.entry(at.segment()).or_default() += u64::from(len);
            }
        };
        // What was removed counts until it is counted out, and has its timers until then.
        for slot in self.slots().map(|(_, slot)| slot).chain(self.removed_slots()) {
            slot.mailbox.iter_from(0).for_each(|(_, entry)| count(entry.at, entry.len));
            let extras = slot.mailbox.extras();
            for (_, delayed) in extras.into_iter().flat_map(|s| s.delayed.iter()) {
                count(delayed.at, delayed.len);
            }
            check_timers_of_messages(slot, &self.timers);
        }
        self.live.check_invariants(&live);
        let (mut wall, mut mono) = (0, 0);
        for (index, slot) in self.slots() {
            let due_ms = slot.expiry.and_then(|timer| self.timers.wall.deadline(timer));
            let Mailbox { ref address, expires_ms, .. } = slot.mailbox;
            assert_eq!(due_ms.unwrap_or(0), expires_ms, "when {address} expires");
            slot.groups().for_each(|group| check_timers_of_group(group, &self.timers));
            let Some(extras) = slot.mailbox.extras() else { continue };
            // Nobody knows these timers: there must be enough.
            wall += extras.expiries.len() + extras.delayed.len();
            wall += usize::from(extras.sent_ids.is_some());
            // A follower lets nothing go by itself: the timer comes with the lead.
            mono += usize::from(extras.is_trimmed && !is_follower);
            let sweep = slot.consumers().and_then(|consumers| consumers.sweep);
            let is_served = || self.streams.values().any(|served| *served == index);
            let goes_on = sweep.is_none_or(|sweep| sweep.timed || is_follower || !is_served());
            assert!(goes_on, "nobody looks for what no consumer wants");
            mono += usize::from(sweep.is_some_and(|sweep| sweep.timed) && !is_follower);
        }
        let timers = (self.timers.wall.len(), self.timers.mono.len());
        assert!(timers.0 >= wall && timers.1 >= mono, "{timers:?} timers for {wall} and {mono}");
    }

    fn check_slots(&self) {
        self.check_index();
        let mut numbers = BTreeSet::new();
        for (_, slot) in self.slots() {
            slot.check_invariants();
            let number = slot.mailbox.number;
            assert!(numbers.insert(number) && number < self.next_number, "mailbox {number} twice");
        }
        self.usage.check_invariants(self.slots().map(|(_, slot)| {
            let mailbox = &slot.mailbox;
            let owner = mailbox.policy().owner.as_deref();
            (&*mailbox.address, owner, slot.owner, counted_bytes(mailbox))
        }));
    }
}

/// Panics unless each expiry and delay has its timer.
fn check_timers_of_messages(slot: &Slot, timers: &Timers) {
    let address = &slot.mailbox.address;
    let due_ms = |timer| timers.wall.deadline(timer);
    let Some(extras) = slot.mailbox.extras() else { return };
    for (msg_id, (expires_ms, timer)) in extras.expiries.iter() {
        assert_eq!(due_ms(*timer), Some(*expires_ms), "when {msg_id} of {address} expires");
    }
    for (delay_id, delayed) in extras.delayed.iter() {
        // Later if it could not be logged when it was due.
        let is_due = due_ms(delayed.timer).is_some_and(|at_ms| at_ms >= delayed.due_ms);
        assert!(is_due, "delayed message {delay_id} of {address} is never due");
    }
}

/// Panics unless the earliest lease of a group has a timer, and timers are where they are thought to be.
fn check_timers_of_group(group: &GroupSlot, timers: &Timers) {
    let name = &group.name;
    if let Some((timer, armed_ms)) = group.timer {
        assert_eq!(timers.mono.deadline(timer), Some(armed_ms), "timer of group {name}");
    }
    // Leases of an inbox end with connections only.
    if let Some(deadline_ms) = group.group.next_deadline_ms().filter(|&at_ms| at_ms != u64::MAX) {
        let armed = group.timer.is_some_and(|(_, armed_ms)| armed_ms <= deadline_ms);
        assert!(armed, "leases of group {name} that never end");
    }
    if let Some(timer) = group.idle {
        assert!(timers.mono.deadline(timer).is_some(), "group {name} is never found idle");
    }
}

impl Slot {
    /// Panics unless the mailbox and its groups agree with themselves and with each other.
    fn check_invariants(&self) {
        let mailbox = &self.mailbox;
        mailbox.check_invariants();
        self.check_groups();
        if let Some(subjects) = mailbox.subjects() {
            subjects.check_invariants(mailbox.iter_from(0).map(|(_, entry)| entry.msg_id));
        }
        self.check_consumers();
        for group in self.groups() {
            group.group.check_invariants();
            for pending in group.group.all_pending() {
                let delivered = pending.delivered;
                let level = mailbox.get(delivered.msg_id).map(|(level, _)| level);
                assert_eq!(level, Some(delivered.level), "{delivered:?} of {} left", group.name);
            }
        }
    }
}

impl Slot {
    /// Panics unless the consumers of a stream agree with themselves and with what it holds.
    fn check_consumers(&self) {
        let mailbox = &self.mailbox;
        let Some(consumers) = self.consumers() else { return };
        consumers.check_invariants();
        for (_, slot) in consumers.iter() {
            let (name, consumer) = (&slot.name, &slot.consumer);
            let subjects = mailbox.subjects();
            let is_wanted = |msg_id: u64| {
                let known = subjects.and_then(|subjects| subjects.get(subjects.of(msg_id)?));
                known.is_some_and(|known| consumer.policy.wants(&known.subject))
            };
            let lanes = mailbox.lanes().iter();
            let ids = lanes.flat_map(|(level, lane)| lane.iter_from(consumer.next_in(*level)));
            let pending = ids.filter(|entry| is_wanted(entry.msg_id)).count();
            let pending = pending + consumer.early().count();
            assert_eq!(consumer.pending(), pending as u64, "messages to come for {name}");
            for msg_id in consumer.open_within(0, u64::MAX) {
                let level = mailbox.get(msg_id).map(|(level, _)| level);
                assert!(level.is_some(), "{msg_id} is out with {name} or given up, and gone");
                let is_known = consumer.has_given_up(msg_id) || consumer.level(msg_id) == level;
                assert!(is_known, "the level of {msg_id}");
                let is_new = level.is_some_and(|level| consumer.is_new(level, msg_id));
                assert!(!is_new, "{msg_id} is out with {name} and would be given as new");
            }
        }
    }
}
