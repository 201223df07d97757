//! Long polls: fetches that found nothing and wait for something to become available.
//!
//! A mailbox in which something may have become available is marked ready; the waits on it are
//! tried when the caller asks for completions, once per batch of commands rather than per message.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use super::Store;
use super::fetch::{Fetch, fetch_limits};
use super::fetched::Fetched;
use super::indexes::{GroupIx, SlotIx};
use super::timers::{Purpose, Timer};
use crate::error::{Error, Result};
use crate::group::Member;
use crate::mailbox::{EXPIRES, LEVELS, Level};
use crate::time::Now;
use crate::timer::TimerKey;

type State = foldhash::fast::RandomState;

/// The answer to a fetch that waited.
#[derive(Debug)]
pub struct Completion {
    /// The waiter's number, as [`super::FetchOutcome::Waiting`] gave it.
    pub waiter: u64,
    /// Its messages; none if the wait is over.
    pub outcome: Result<Fetched>,
}

struct Waiter {
    slot: SlotIx,
    request: Fetch,
    cursors: [u64; LEVELS],
    timer: TimerKey,
}

/// Where a connection holds messages.
#[derive(PartialEq, Eq, Hash)]
struct Holding {
    slot: SlotIx,
    number: u64,
    group: GroupIx,
}

/// What must end when a connection does.
#[derive(Default)]
struct Connection {
    waits: BTreeSet<u64>,
    holdings: HashSet<Holding, State>,
}

/// All waits, and what connections hold.
#[derive(Default)]
pub(super) struct Waiters {
    next: u64,
    by_id: HashMap<u64, Waiter, State>,
    /// Oldest first: numbers ascend.
    by_slot: HashMap<SlotIx, BTreeSet<u64>, State>,
    ready: BTreeSet<SlotIx>,
    completed: Vec<Completion>,
    connections: HashMap<u64, Connection, State>,
    /// How many are counted to each user.
    by_user: HashMap<Arc<str>, usize, State>,
}

impl Waiters {
    /// The waits for a group of a mailbox.
    fn of_group<'a>(&'a self, slot: SlotIx, group: &'a str) -> impl Iterator<Item = u64> + 'a {
        let waits_for = move |id: &u64| {
            let waiter = self.by_id.get(id);
            let of = waiter.and_then(|waiter| waiter.request.group.as_ref());
            of.is_some_and(|of| of.name == group)
        };
        self.by_slot.get(&slot).into_iter().flatten().copied().filter(waits_for)
    }

    /// How many fetches wait for a group of a mailbox.
    pub fn waits_of_group(&self, slot: SlotIx, group: &str) -> usize {
        self.of_group(slot, group).count()
    }

    fn take(&mut self, id: u64) -> Option<Waiter> {
        let waiter = self.by_id.remove(&id)?;
        if let Some(queue) = self.by_slot.get_mut(&waiter.slot) {
            queue.remove(&id);
            if queue.is_empty() {
                self.by_slot.remove(&waiter.slot);
            }
        }
        if let Some(connection) = self.connections.get_mut(&waiter.request.conn) {
            connection.waits.remove(&id);
        }
        if let Some(user) = &waiter.request.user
            && let Some(count) = self.by_user.get_mut(user)
        {
            *count -= 1;
            if *count == 0 {
                self.by_user.remove(user);
            }
        }
        Some(waiter)
    }

    /// Remembers that a connection holds messages of a group.
    pub fn note_holder(&mut self, conn: u64, slot: SlotIx, number: u64, group: GroupIx) {
        let holdings = &mut self.connections.entry(conn).or_default().holdings;
        holdings.insert(Holding { slot, number, group });
    }

    /// Whether a connection is known to hold messages of a group.
    pub fn is_holder(&self, conn: u64, slot: SlotIx, number: u64, group: GroupIx) -> bool {
        let holding = Holding { slot, number, group };
        self.connections.get(&conn).is_some_and(|of| of.holdings.contains(&holding))
    }

    /// Panics unless each wait is listed wherever it must be found, and has a timer. For tests.
    pub fn check_invariants(&self, state: &super::state::State) {
        let listed: usize = self.by_slot.values().map(BTreeSet::len).sum();
        assert_eq!(listed, self.by_id.len(), "waits by mailbox");
        assert!(self.by_slot.values().all(|queue| !queue.is_empty()), "an empty queue of waits");
        let of_connections: usize = self.connections.values().map(|of| of.waits.len()).sum();
        assert_eq!(of_connections, self.by_id.len(), "waits by connection");
        let mut users: HashMap<Arc<str>, usize, State> = HashMap::default();
        for (id, waiter) in &self.by_id {
            let request = &waiter.request;
            let queued = self.by_slot.get(&waiter.slot).is_some_and(|queue| queue.contains(id));
            assert!(queued && *id < self.next, "wait {id} for a mailbox that does not know of it");
            let of = self.connections.get(&request.conn);
            assert!(of.is_some_and(|of| of.waits.contains(id)), "wait {id} outlives its client");
            assert!(state.timers.mono.deadline(waiter.timer).is_some(), "wait {id} never ends");
            let slot = state.slot(waiter.slot);
            let known = slot.is_some_and(|slot| {
                *slot.mailbox.address == *request.address
                    && request.group.as_ref().is_none_or(|g| slot.find_group(&g.name).is_some())
            });
            assert!(known, "wait {id} for a mailbox or group that is not there");
            if let Some(user) = &request.user {
                *users.entry(Arc::clone(user)).or_default() += 1;
            }
        }
        assert_eq!(self.by_user, users, "waits by user");
        let ended = self.completed.iter().all(|done| !self.by_id.contains_key(&done.waiter));
        assert!(ended, "a wait that is answered and goes on");
    }
}

impl Store {
    /// Takes the waits that are over. Call it after each batch of commands and after a tick.
    pub fn completions(&mut self, now: Now) -> Vec<Completion> {
        self.some_completions(usize::MAX, now)
    }

    /// The same, but only until these have so many bytes of messages; the rest later.
    pub fn some_completions(&mut self, bytes: usize, now: Now) -> Vec<Completion> {
        let mut left = bytes;
        while left > 0
            && let Some(slot) = self.waiters.ready.pop_first()
        {
            if !self.try_waiters(slot, &mut left, now) {
                self.waiters.ready.insert(slot);
            }
        }
        std::mem::take(&mut self.waiters.completed)
    }

    /// Whether there are waits that may be over.
    pub fn has_completions(&self) -> bool {
        !self.waiters.ready.is_empty() || !self.waiters.completed.is_empty()
    }

    /// How many fetches of a connection wait.
    pub fn waits_of(&self, conn: u64) -> usize {
        self.waiters.connections.get(&conn).map_or(0, |connection| connection.waits.len())
    }

    /// How many fetches of a user wait.
    pub fn waits_of_user(&self, user: &str) -> usize {
        self.waiters.by_user.get(user).copied().unwrap_or_default()
    }

    /// The fetches of a connection that wait.
    pub fn waits(&self, conn: u64) -> Vec<u64> {
        let connection = self.waiters.connections.get(&conn);
        connection.map_or_else(Vec::new, |connection| connection.waits.iter().copied().collect())
    }

    /// How many fetches wait.
    pub fn waiting(&self) -> usize {
        self.waiters.by_id.len()
    }

    /// Gives up a wait; true if it was waiting.
    pub fn cancel_wait(&mut self, waiter: u64) -> bool {
        let taken = self.waiters.take(waiter);
        if let Some(waiter) = &taken {
            self.state.journal.touch(waiter.slot);
            self.state.timers.mono.cancel(waiter.timer);
        }
        taken.is_some()
    }

    /// Panics if a wait goes on though there is something for it, and nobody will look. For tests.
    pub(super) fn check_waits_are_in_vain(&self) {
        for (id, waiter) in &self.waiters.by_id {
            let (request, slot) = (&waiter.request, self.state.slot(waiter.slot));
            let (Some(slot), false) = (slot, self.waiters.ready.contains(&waiter.slot)) else {
                continue;
            };
            let available = match &request.group {
                None => slot.mailbox.iter_from(0).any(|(level, entry)| {
                    level <= request.max_level
                        && entry.msg_id >= waiter.cursors[level.index()]
                        && entry.flags & EXPIRES == 0
                }),
                Some(group) => {
                    let limits = fetch_limits(slot, request);
                    // What anybody would be given; what the member holds it knows of.
                    let (anybody, lanes) = (Member::named(""), slot.mailbox.lanes());
                    let group = slot.find_group(&group.name).and_then(|at| slot.group(at));
                    let plan = group.map(|g| g.group.plan_fetch(&anybody, lanes, &limits));
                    plan.is_some_and(|plan| !plan.picks.is_empty())
                }
            };
            assert!(!available, "wait {id} goes on though there is something for it");
        }
    }

    /// A connection has closed: its waits end unanswered, what it held goes back to its groups.
    /// Returns the waits that ended.
    pub fn disconnect(&mut self, conn: u64, now: Now) -> BTreeSet<u64> {
        self.tick(now);
        let Some(connection) = self.waiters.connections.remove(&conn) else {
            return BTreeSet::new();
        };
        for &id in &connection.waits {
            if let Some(waiter) = self.waiters.take(id) {
                self.state.timers.mono.cancel(waiter.timer);
                self.note_wait_used(&waiter, now);
            }
        }
        let member = Member::Conn { epoch: self.state.epoch, conn };
        for Holding { slot, number, group } in connection.holdings {
            if self.state.slot_of(slot, number).is_none() {
                continue;
            }
            let of = self.state.slot_mut(slot).and_then(|slot| slot.group_mut(group));
            if let Some(of) = of {
                of.group.release_member(&member);
            }
            self.state.journal.touch(slot);
            self.state.arm_leases(slot, group);
            self.mark_ready(slot);
        }
        connection.waits
    }

    /// A group was in use until now, by a fetch that waited for it.
    fn note_wait_used(&mut self, waiter: &Waiter, now: Now) {
        let Some(group) = &waiter.request.group else { return };
        let slot = self.state.slot(waiter.slot);
        if let Some(at) = slot.and_then(|slot| slot.find_group(&group.name)) {
            self.note_use(waiter.slot, at, now);
        }
    }

    /// Whether a fetch waits for a group.
    pub(super) fn is_waited_for(&self, slot: SlotIx, group: &str) -> bool {
        self.waiters.of_group(slot, group).next().is_some()
    }

    /// Something may have become available in a mailbox.
    pub(super) fn mark_ready(&mut self, slot: SlotIx) {
        if self.waiters.by_slot.len() | self.readers.len() != 0 {
            self.wake_up(slot);
        }
    }

    fn wake_up(&mut self, slot: SlotIx) {
        if self.waiters.by_slot.contains_key(&slot) {
            self.waiters.ready.insert(slot);
        }
        self.readers.wake(slot);
    }

    pub(super) fn wait(
        &mut self,
        slot: SlotIx,
        request: Fetch,
        cursors: [u64; LEVELS],
        now: Now,
    ) -> u64 {
        self.state.journal.touch(slot);
        let id = self.waiters.next;
        self.waiters.next += 1;
        let timer = Timer { number: self.state.number(slot), id, slot, purpose: Purpose::Wait };
        let until = now.mono_ms.saturating_add(request.wait_ms);
        let timer = self.state.timers.mono.insert(until, timer);
        self.waiters.connections.entry(request.conn).or_default().waits.insert(id);
        if let Some(user) = &request.user {
            *self.waiters.by_user.entry(Arc::clone(user)).or_default() += 1;
        }
        self.waiters.by_id.insert(id, Waiter { slot, request, cursors, timer });
        self.waiters.by_slot.entry(slot).or_default().insert(id);
        id
    }

    pub(super) fn end_wait(&mut self, id: u64, now: Now) {
        if let Some(waiter) = self.waiters.take(id) {
            self.note_wait_used(&waiter, now);
            let mut nothing = Fetched::default();
            nothing.note(self.end());
            self.waiters.completed.push(Completion { waiter: id, outcome: Ok(nothing) });
        }
    }

    /// The mailbox is going: who waits for it is told so.
    pub(super) fn fail_waiters(&mut self, slot: SlotIx, address: &str) {
        let queue = self.waiters.by_slot.get(&slot);
        let ids: Vec<u64> = queue.into_iter().flatten().copied().collect();
        self.fail(ids, || Error::MailboxNotFound(address.to_owned()));
    }

    /// The group has gone: who waits for it is told so.
    pub(super) fn fail_waiters_of_group(&mut self, slot: SlotIx, mailbox: &str, group: &str) {
        let ids = self.waiters.of_group(slot, group).collect();
        self.fail(ids, || Error::GroupNotFound {
            mailbox: mailbox.to_owned(),
            group: group.to_owned(),
        });
    }

    fn fail(&mut self, waiters: Vec<u64>, error: impl Fn() -> Error) {
        for waiter in waiters {
            if self.cancel_wait(waiter) {
                self.waiters.completed.push(Completion { waiter, outcome: Err(error()) });
            }
        }
    }

    /// Answers the waits on a mailbox; false if there are more than `left` bytes allow.
    fn try_waiters(&mut self, slot: SlotIx, left: &mut usize, now: Now) -> bool {
        let queue = self.waiters.by_slot.get(&slot);
        let ids: Vec<u64> = queue.into_iter().flatten().copied().collect();
        // A group that had nothing for one waiter has nothing for the next that asks no more.
        let mut exhausted: HashSet<(String, Level), State> = HashSet::default();
        for id in ids {
            if *left == 0 {
                return false;
            }
            let Some(waiter) = self.waiters.by_id.get(&id) else { continue };
            let group = waiter.request.group.as_ref();
            let asks = group.map(|group| (group.name.clone(), waiter.request.max_level));
            if asks.as_ref().is_some_and(|asks| exhausted.contains(asks)) {
                continue;
            }
            let (request, cursors) = (waiter.request.clone(), waiter.cursors);
            let outcome = self.try_fetch(slot, &request, &cursors, now);
            if matches!(&outcome, Ok(batch) if batch.is_empty()) {
                exhausted.extend(asks);
                continue;
            }
            self.cancel_wait(id);
            *left = left.saturating_sub(outcome.as_ref().map_or(0, Fetched::bytes));
            self.waiters.completed.push(Completion { waiter: id, outcome });
        }
        true
    }
}
