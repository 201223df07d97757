//! The model: lists of what is stored, of what each consumer was given, and of when that comes back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mq9_core::consumer::Position;
use mq9_core::store::ConsumerAck;
use mq9_core::time::Now;

/// How long ids are remembered.
const DEDUP_MS: u64 = mq9_core::mailbox::DEDUP_WINDOW_MS;

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub is_work_queue: bool,
    /// Only messages stay that some consumer wants.
    pub interest: bool,
    pub max_msgs: u64,
    pub max_age_ms: u64,
    pub max_ack_pending: u32,
    pub max_deliver: u32,
    pub ack_wait_ms: u64,
}

#[derive(Debug, Clone)]
pub struct Stored {
    subject: &'static str,
    level: u8,
    create_ms: u64,
}

/// When a message that is out comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Back {
    At(u64),
    /// It has, as the so-manieth of its level.
    Queued(u8, u64),
}

#[derive(Debug, Clone, Copy)]
pub struct Out {
    number: u64,
    count: u32,
    back: Back,
    /// It was returned, to come back at this wall time.
    returned: Option<u64>,
}

#[derive(Debug, Default)]
pub struct Consumer {
    pub name: String,
    pub filters: Vec<&'static str>,
    pub out: BTreeMap<u64, Out>,
    pub given: u64,
    /// The highest number that was given.
    pub highest: u64,
    /// All that it was ever given.
    had: BTreeSet<u64>,
    /// What it was given as often as allowed, with how often, and has said nothing of since.
    given_up: BTreeMap<u64, u32>,
    /// What it does with its floor is not known for a while.
    has_given_up: bool,
    places: u64,
}

#[derive(Debug)]
pub struct Model {
    pub limits: Limits,
    pub stored: BTreeMap<u64, Stored>,
    pub next_id: u64,
    pub consumers: Vec<Consumer>,
    ids: BTreeMap<String, (u64, u64)>,
}

impl Consumer {
    fn wants(&self, subject: &str) -> bool {
        let fits = |filter: &&str| match filter.split_once('.') {
            Some((first, "*")) => subject.starts_with(first) && subject.contains('.'),
            Some(("*", last)) => subject.ends_with(last) && subject.contains('.'),
            _ => *filter == subject,
        };
        self.filters.is_empty() || self.filters.iter().any(fits)
    }

    fn queue(&mut self, msg_id: u64, level: u8) {
        let out = self.out.get_mut(&msg_id).unwrap();
        if !matches!(out.back, Back::Queued(..)) {
            out.back = Back::Queued(level, self.places);
            self.places += 1;
        }
    }

    /// What is to be given again, in that order.
    fn again(&self) -> Vec<u64> {
        let queued = self.out.iter().filter(|(_, out)| matches!(out.back, Back::Queued(..)));
        let mut queued: Vec<_> = queued.map(|(msg_id, out)| (out.back, *msg_id)).collect();
        queued.sort_unstable();
        queued.into_iter().map(|(_, msg_id)| msg_id).collect()
    }

    fn give_up(&mut self, msg_id: u64) {
        let out = self.out.remove(&msg_id).unwrap();
        self.given_up.insert(msg_id, out.count);
        self.has_given_up = true;
    }

    /// Messages that it was given more than once, and has not done with.
    pub fn redelivered(&self) -> u64 {
        let counts = self.out.values().map(|out| out.count).chain(self.given_up.values().copied());
        counts.filter(|count| *count > 1).count() as u64
    }

    /// Whether it wants a message and has not done with it: what it has given up, it has not done with.
    fn needs(&self, msg_id: u64, subject: &str) -> bool {
        let is_done = self.had.contains(&msg_id)
            && !self.out.contains_key(&msg_id)
            && !self.given_up.contains_key(&msg_id);
        self.wants(subject) && !is_done
    }
}

impl Model {
    pub fn new(limits: Limits) -> Model {
        let (stored, ids) = (BTreeMap::new(), BTreeMap::new());
        Model { limits, stored, next_id: 0, consumers: Vec::new(), ids }
    }

    pub fn add_consumer(&mut self, name: &str, filters: &[&'static str]) {
        let (name, filters) = (name.to_owned(), filters.to_vec());
        self.consumers.push(Consumer { name, filters, ..Consumer::default() });
    }

    /// The number of the message, and whether it was there already.
    pub fn publish(&mut self, subject: &'static str, level: u8, id: &str, now: Now) -> (u64, bool) {
        if let Some((seq, at)) = self.ids.get(id)
            && now.wall_ms < at + DEDUP_MS
        {
            return (*seq, true);
        }
        self.stored.insert(self.next_id, Stored { subject, level, create_ms: now.wall_ms });
        self.next_id += 1;
        if !id.is_empty() {
            self.ids.insert(id.to_owned(), (self.next_id, now.wall_ms));
        }
        let most = self.limits.max_msgs as usize;
        while most > 0 && self.stored.len() > most {
            let oldest = *self.stored.keys().next().unwrap();
            self.remove(oldest);
        }
        self.let_go(self.next_id - 1);
        (self.next_id, false)
    }

    /// A message goes if only interest keeps it, and no consumer wants it any more.
    fn let_go(&mut self, msg_id: u64) {
        let Some(stored) = self.stored.get(&msg_id) else { return };
        let is_needed = self.consumers.iter().any(|one| one.needs(msg_id, stored.subject));
        if self.limits.interest && !is_needed {
            self.remove(msg_id);
        }
    }

    fn let_all_go(&mut self) {
        let all: Vec<u64> = self.stored.keys().copied().collect();
        all.into_iter().for_each(|msg_id| self.let_go(msg_id));
    }

    /// The last consumer is removed.
    pub fn remove_last_consumer(&mut self) {
        self.consumers.pop();
        self.let_all_go();
    }

    /// A consumer wants only some of what it wanted before.
    pub fn narrow(&mut self, ix: usize, filters: &[&'static str]) {
        self.consumers[ix].filters = filters.to_vec();
        self.consumers[ix].has_given_up = true;
        self.let_all_go();
    }

    pub fn remove(&mut self, msg_id: u64) -> bool {
        for consumer in &mut self.consumers {
            consumer.out.remove(&msg_id);
            consumer.given_up.remove(&msg_id);
        }
        self.stored.remove(&msg_id).is_some()
    }

    pub fn purge(&mut self, filter: Option<&str>, before: Option<u64>) -> u64 {
        let goes = |msg_id: u64, stored: &Stored| {
            filter.is_none_or(|_| stored.subject.starts_with("a."))
                && before.is_none_or(|before| msg_id < before)
        };
        let all = self.stored.iter().filter(|(msg_id, stored)| goes(**msg_id, stored));
        let gone: Vec<u64> = all.map(|(msg_id, _)| *msg_id).collect();
        for msg_id in &gone {
            self.remove(*msg_id);
        }
        // A purge of nothing leaves consumers where they stand.
        if filter.is_none() && before.is_none() && !gone.is_empty() {
            for consumer in &mut self.consumers {
                consumer.highest = self.next_id;
                consumer.has_given_up = false;
            }
        }
        gone.len() as u64
    }

    /// What a consumer was never given, the most urgent first.
    pub fn to_come(&self, ix: usize) -> Vec<u64> {
        let consumer = &self.consumers[ix];
        let wanted = self.stored.iter().filter(|(msg_id, stored)| {
            consumer.wants(stored.subject) && !consumer.had.contains(msg_id)
        });
        let mut wanted: Vec<_> = wanted.map(|(msg_id, stored)| (stored.level, *msg_id)).collect();
        wanted.sort_unstable();
        wanted.into_iter().map(|(_, msg_id)| msg_id).collect()
    }

    /// What a consumer is given now: messages, and how often each was.
    pub fn pull(&mut self, ix: usize, most: usize, now: Now) -> Vec<(u64, u32)> {
        let Limits { max_deliver, max_ack_pending, ack_wait_ms, .. } = self.limits;
        let new = self.to_come(ix);
        let consumer = &mut self.consumers[ix];
        loop {
            let first: Vec<u64> = consumer.again().into_iter().take(most).collect();
            let is_over =
                |msg_id: &u64| max_deliver > 0 && consumer.out[msg_id].count >= max_deliver;
            let over: Vec<u64> = first.into_iter().filter(is_over).collect();
            if over.is_empty() {
                break;
            }
            over.into_iter().for_each(|msg_id| consumer.give_up(msg_id));
        }
        let room = match max_ack_pending as usize {
            0 => usize::MAX,
            limit => limit.saturating_sub(consumer.out.len()),
        };
        let level = |msg_id: &u64| self.stored[msg_id].level;
        let again = consumer.again().into_iter().map(|msg_id| (level(&msg_id), 0, msg_id));
        let new = new.into_iter().take(room).map(|msg_id| (level(&msg_id), 1, msg_id));
        let mut all: Vec<_> = again.chain(new).collect();
        // Stable: those that come again stay in their order.
        all.sort_by_key(|(level, is_new, _)| (*level, *is_new));
        let mut given = Vec::new();
        for (_, _, msg_id) in all.into_iter().take(most) {
            consumer.given += 1;
            let back = Back::At(now.mono_ms + ack_wait_ms);
            let number = consumer.given;
            let out = consumer.out.entry(msg_id);
            let out = out.or_insert(Out { number, count: 0, back, returned: None });
            *out = Out { count: out.count + 1, back, returned: None, ..*out };
            given.push((msg_id, out.count));
            consumer.had.insert(msg_id);
            consumer.highest = consumer.highest.max(msg_id + 1);
        }
        given
    }

    /// A consumer says something of a message. Says whether that was ever given to it; nothing where that is not known
    /// any more.
    pub fn say(&mut self, ix: usize, msg_id: u64, ack: &ConsumerAck, now: Now) -> Option<bool> {
        let Limits { is_work_queue, ack_wait_ms, .. } = self.limits;
        let level = self.stored.get(&msg_id).map(|stored| stored.level);
        let consumer = &mut self.consumers[ix];
        if !consumer.had.contains(&msg_id) {
            let wanted = self.stored.get(&msg_id).is_some_and(|s| consumer.wants(s.subject));
            return wanted.then_some(false);
        }
        let is_out = consumer.out.contains_key(&msg_id);
        match ack {
            ConsumerAck::Done | ConsumerAck::Terminate(_) | ConsumerAck::Bury(..) => {
                let is_kept = consumer.given_up.remove(&msg_id).is_some();
                consumer.out.remove(&msg_id);
                if is_work_queue && (is_out || is_kept) {
                    self.remove(msg_id);
                }
                self.let_go(msg_id);
            }
            ConsumerAck::Return(wait_ms) if is_out => {
                let wait_ms = wait_ms.unwrap_or(0);
                let out = consumer.out.get_mut(&msg_id).unwrap();
                out.returned = Some(now.wall_ms + wait_ms);
                match wait_ms {
                    0 => consumer.queue(msg_id, level.unwrap()),
                    ms => out.back = Back::At(now.mono_ms + ms),
                }
            }
            ConsumerAck::Progress if is_out => {
                let out = consumer.out.get_mut(&msg_id).unwrap();
                out.back = Back::At(now.mono_ms + ack_wait_ms);
                out.returned = out.returned.map(|_| now.wall_ms + ack_wait_ms);
            }
            ConsumerAck::Return(_) | ConsumerAck::Progress => {}
        }
        Some(true)
    }

    pub fn is_due(&self, now: Now) -> bool {
        let outs = self.consumers.iter().flat_map(|consumer| consumer.out.values());
        let mut backs = outs.map(|out| out.back);
        let max_age_ms = self.limits.max_age_ms;
        let oldest = self.stored.values().next().map(|stored| stored.create_ms);
        let is_over = max_age_ms > 0 && oldest.is_some_and(|ms| ms + max_age_ms <= now.wall_ms);
        is_over || backs.any(|back| back <= Back::At(now.mono_ms))
    }

    /// Deadlines have come.
    pub fn tick(&mut self, now: Now) {
        let Limits { max_age_ms, max_deliver, .. } = self.limits;
        if max_age_ms > 0 {
            let old = |stored: &Stored| stored.create_ms + max_age_ms <= now.wall_ms;
            let old = self.stored.iter().take_while(|(_, stored)| old(stored));
            let old: Vec<u64> = old.map(|(msg_id, _)| *msg_id).collect();
            for msg_id in old {
                self.remove(msg_id);
            }
        }
        for consumer in &mut self.consumers {
            let due = consumer.out.iter().filter(|(_, out)| out.back <= Back::At(now.mono_ms));
            let mut due: Vec<_> = due.map(|(msg_id, out)| (out.back, *msg_id, out.count)).collect();
            due.sort_unstable();
            for (_, msg_id, count) in due {
                match max_deliver > 0 && count >= max_deliver {
                    true => consumer.give_up(msg_id),
                    false => consumer.queue(msg_id, self.stored[&msg_id].level),
                }
            }
        }
    }

    /// What is out comes back after a while; what was returned, when that was said.
    pub fn reopen(&mut self, now: Now) {
        for out in self.consumers.iter_mut().flat_map(|consumer| consumer.out.values_mut()) {
            let wait_ms = match out.returned {
                Some(due_ms) => due_ms.saturating_sub(now.wall_ms),
                None => self.limits.ack_wait_ms,
            };
            out.back = Back::At(now.mono_ms + wait_ms);
        }
    }

    /// Subjects of what is stored, with how many messages each has.
    pub fn subjects(&self) -> Vec<(Arc<str>, u64)> {
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        self.stored.values().for_each(|stored| *counts.entry(stored.subject).or_default() += 1);
        counts.into_iter().map(|(subject, count)| (subject.into(), count)).collect()
    }

    /// The floor is behind everything that is done with, and before everything that is not.
    pub fn check_floor(&self, ix: usize, floor: Position) {
        let consumer = &self.consumers[ix];
        let name = &consumer.name;
        let to_come = self.to_come(ix).into_iter().min();
        let open = consumer.out.keys().next().copied().into_iter().chain(to_come).min();
        let most = open.unwrap_or(u64::MAX).min(consumer.highest);
        assert!(floor.stream <= most, "the floor of {name}, {floor:?}, is above {most}");
        // What is given up holds it back for a while, as with nats-server.
        if consumer.has_given_up {
            return;
        }
        let passed = consumer.had.range(floor.stream..most.max(floor.stream)).next();
        assert_eq!(passed, None, "the floor of {name} is {floor:?} and not {most}");
        let least = consumer.out.values().map(|out| out.number - 1).min();
        assert_eq!(floor.consumer, least.unwrap_or(consumer.given), "the floor of {name}");
    }
}
