//! The consumers of one stream, by name and by a number that no other has while the store is open.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;

use super::activity::GroupCounts;
use super::indexes::SlotIx;
use crate::consumer::Consumer;
use crate::timer::TimerKey;

/// A consumer while the store is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumerKey {
    /// The slot of its stream's mailbox.
    pub slot: SlotIx,
    /// Its own number.
    pub id: u64,
}

/// A consumer, the timer of its earliest deadline, and when it was last used.
#[derive(Debug)]
pub struct ConsumerSlot {
    /// Its name.
    pub name: Arc<str>,
    /// Its state.
    pub consumer: Consumer,
    /// The armed timer and its deadline.
    pub timer: Option<(TimerKey, u64)>,
    /// When it was last used, by the monotonic clock; that it was is not recorded.
    pub used_ms: u64,
    /// Wall time of the last delivery since the store was opened; 0 without one.
    pub delivered_ms: u64,
    /// The same, of the last acknowledgement.
    pub acked_ms: u64,
    /// The timer that looks whether it is still used.
    pub idle: Option<TimerKey>,
    /// What it has done.
    pub counts: GroupCounts,
}

/// A look for messages that no consumer wants any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sweep {
    /// The first message that was not looked at.
    pub next: u64,
    /// The first message that came after it began.
    pub end: u64,
    /// A timer lets it go on.
    pub timed: bool,
}

/// The consumers of one stream.
#[derive(Debug, Default)]
pub struct Consumers {
    /// Where only messages stay that some consumer wants: others are looked for since one was removed or changed.
    pub sweep: Option<Sweep>,
    by_name: HashMap<Arc<str>, u64, foldhash::fast::RandomState>,
    by_id: BTreeMap<u64, ConsumerSlot>,
}

impl Consumers {
    /// The number of a consumer.
    pub fn find(&self, name: &str) -> Option<u64> {
        self.by_name.get(name).copied()
    }

    /// A consumer.
    pub fn get(&self, id: u64) -> Option<&ConsumerSlot> {
        self.by_id.get(&id)
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, id: u64) -> Option<&mut ConsumerSlot> {
        self.by_id.get_mut(&id)
    }

    /// Adds a consumer whose name and number are free.
    pub fn add(&mut self, id: u64, name: &str, consumer: Consumer) {
        let name: Arc<str> = name.into();
        let replaced = self.by_name.insert(Arc::clone(&name), id);
        debug_assert!(replaced.is_none(), "the consumer is there already");
        let slot = ConsumerSlot {
            name,
            consumer,
            timer: None,
            used_ms: 0,
            delivered_ms: 0,
            acked_ms: 0,
            idle: None,
            counts: GroupCounts::default(),
        };
        self.by_id.insert(id, slot);
    }

    /// Takes a consumer out. Its timers are the caller's to cancel.
    pub fn remove(&mut self, id: u64) -> Option<ConsumerSlot> {
        let removed = self.by_id.remove(&id)?;
        self.by_name.remove(&removed.name);
        Some(removed)
    }

    /// Takes out all of them.
    pub fn take(&mut self) -> Vec<(u64, ConsumerSlot)> {
        self.by_name.clear();
        std::mem::take(&mut self.by_id).into_iter().collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// All of them with their numbers, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &ConsumerSlot)> {
        self.by_id.iter().map(|(id, slot)| (*id, slot))
    }

    /// The same, to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut ConsumerSlot)> {
        self.by_id.iter_mut().map(|(id, slot)| (*id, slot))
    }

    /// Panics unless each is found by its name and agrees with itself. For tests.
    pub fn check_invariants(&self) {
        assert_eq!(self.by_name.len(), self.by_id.len(), "names of consumers");
        for (id, slot) in &self.by_id {
            assert_eq!(self.by_name.get(&slot.name), Some(id), "number of {}", slot.name);
            slot.consumer.check_invariants();
        }
    }

    /// Panics unless each deadline has a timer. Those of followers rest.
    pub fn check_timers(&self) {
        for slot in self.by_id.values() {
            let armed = slot.timer.map(|(_, at)| at);
            let due = slot.consumer.next_deadline_ms();
            assert!(due.is_none() || armed.is_some_and(|armed| Some(armed) <= due), "no timer");
        }
    }
}
