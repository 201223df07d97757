//! A model of the store that a sequence of records amounts to, as simple as possible.
//!
//! Knows how records are encoded, and the rules of recovery; shares no state code with the store.

use std::collections::{BTreeMap, HashMap};

use mq9_core::group::ranges::{DeliveryRanges, IdRanges};
use mq9_core::log::Lsn;
use mq9_core::mailbox::{LEVELS, Policy, Tier};
use mq9_core::wire::op::{Message, Op};
use mq9_core::wire::record::{FLAG_MORE, FLAG_REST, HEADER};

use crate::house::LATE;
use crate::view::{Given, GroupView, MailboxView, View};

/// A record and where it lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub at: Lsn,
    pub kind: u8,
    pub flags: u8,
    pub mailbox: u64,
    pub body: Vec<u8>,
}

/// What recovery finds in a log, in order.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    Record(&'a Line),
    /// Bytes that are no record, or a segment that is missing.
    Damage,
}

#[derive(Debug, Clone, Default)]
struct GroupModel {
    cursors: [u64; LEVELS],
    /// How often each message was delivered.
    pending: BTreeMap<u64, u32>,
}

#[derive(Debug, Clone)]
struct MailboxModel {
    address: String,
    desc: String,
    created_ms: u64,
    expires_ms: u64,
    policy: Policy,
    next_id: u64,
    messages: BTreeMap<u64, Vec<u8>>,
    delayed: BTreeMap<u64, Vec<u8>>,
    groups: BTreeMap<String, GroupModel>,
}

#[derive(Debug, Clone, Default)]
pub struct Model {
    mailboxes: BTreeMap<u64, MailboxModel>,
    early: HashMap<u64, Vec<Line>>,
}

impl Model {
    pub fn replay<'a>(events: impl IntoIterator<Item = Event<'a>>) -> Model {
        let mut model = Model::default();
        // Records of which all count or none, and where the last one that may count ends.
        let mut unit: Vec<&Line> = Vec::new();
        let mut end = Lsn::NONE;
        for event in events {
            let Event::Record(line) = event else {
                unit.clear();
                continue;
            };
            if line.flags & FLAG_REST == 0 {
                unit.clear();
            } else if line.at != end {
                continue;
            }
            let len = (HEADER + line.body.len()) as u32;
            end = Lsn::new(line.at.segment(), line.at.offset() + len);
            unit.push(line);
            if line.flags & FLAG_MORE == 0 {
                unit.drain(..).for_each(|line| model.apply(line));
            }
        }
        model
    }

    fn apply(&mut self, line: &Line) {
        let number = line.mailbox;
        let op = Op::decode(line.kind, &line.body).unwrap().unwrap();
        match op {
            Op::Opened { .. } => {}
            Op::MailboxCreated { created_ms, expires_ms, address, desc, policy } => {
                let policy = Policy::decode(policy).unwrap().unwrap();
                self.create(number, address, created_ms, expires_ms, desc, policy);
            }
            Op::MailboxRemoved { .. } => {
                self.mailboxes.remove(&number);
                self.early.remove(&number);
            }
            Op::Message(message) => self.find(number, &message).put(&message, &line.body),
            Op::Delayed(message) => {
                let delayed = &mut self.find(number, &message).delayed;
                delayed.insert(message.msg_id, line.body.clone());
            }
            _ => match self.mailboxes.get_mut(&number) {
                Some(mailbox) => mailbox.change(&op),
                None => self.early.entry(number).or_default().push(line.clone()),
            },
        }
    }

    fn create(&mut self, number: u64, address: &str, ms: u64, until: u64, desc: &str, p: Policy) {
        self.mailboxes.retain(|_, mailbox| mailbox.address != address);
        let mailbox = MailboxModel {
            address: address.to_owned(),
            desc: desc.to_owned(),
            created_ms: ms,
            expires_ms: until,
            policy: p,
            next_id: 0,
            messages: BTreeMap::new(),
            delayed: BTreeMap::new(),
            groups: BTreeMap::new(),
        };
        self.mailboxes.insert(number, mailbox);
    }

    /// The mailbox of a message, which brings it back if its creation was lost.
    fn find(&mut self, number: u64, message: &Message<'_>) -> &mut MailboxModel {
        if !self.mailboxes.contains_key(&number) {
            self.create(number, message.address, message.sent_ms, 0, "", Policy::default());
            for line in self.early.remove(&number).unwrap_or_default() {
                self.apply(&line);
            }
        }
        self.mailboxes.get_mut(&number).unwrap()
    }

    /// A record of a checkpointed store becomes unreadable: if a message is stored there it is gone.
    pub fn lose(&mut self, line: &Line) {
        let Ok(Some(op)) = Op::decode(line.kind, &line.body) else { return };
        let Some(mailbox) = self.mailboxes.get_mut(&line.mailbox) else { return };
        match op {
            Op::Message(message) if mailbox.messages.get(&message.msg_id) == Some(&line.body) => {
                mailbox.remove(message.msg_id);
            }
            Op::Delayed(message) => drop(mailbox.delayed.remove(&message.msg_id)),
            _ => {}
        }
    }

    /// What is seen at [`LATE`].
    pub fn view(&self) -> View {
        let view = |mailbox: &MailboxModel| {
            let mailbox = mailbox.late();
            let messages = mailbox.messages.iter().map(|(&msg_id, body)| {
                let message = Message::decode(body).unwrap();
                (msg_id, (message.level, message.create_ms, body.clone()))
            });
            let groups = mailbox.groups.iter().map(|(name, group)| {
                let outstanding = group.pending.len() as u64;
                (name.clone(), GroupView { cursors: group.cursors, outstanding })
            });
            let view = MailboxView {
                desc: mailbox.desc.clone(),
                created_ms: mailbox.created_ms,
                expires_ms: mailbox.expires_ms,
                delayed: 0,
                next_id: mailbox.next_id,
                policy: mailbox.policy.clone(),
                messages: messages.collect(),
                groups: groups.collect(),
            };
            (mailbox.address.clone(), view)
        };
        self.mailboxes.values().map(view).collect()
    }

    /// What each group is given at [`LATE`].
    pub fn given(&self) -> Given {
        let mut given = Given::new();
        for mailbox in self.mailboxes.values().filter(|m| m.policy.max_deliver == 0) {
            let mailbox = mailbox.late();
            for (name, group) in &mailbox.groups {
                let again = group.pending.iter().map(|(&msg_id, &count)| (msg_id, count + 1));
                let new = mailbox.messages.iter().filter(|(msg_id, body)| {
                    let level = Message::decode(body).unwrap().level;
                    **msg_id >= group.cursors[usize::from(level) - 1]
                });
                let all = again.chain(new.map(|(&msg_id, _)| (msg_id, 1))).collect();
                given.insert((mailbox.address.clone(), name.clone()), all);
            }
        }
        given
    }
}

impl MailboxModel {
    fn put(&mut self, message: &Message<'_>, body: &[u8]) {
        let same_key = |body: &Vec<u8>| Message::decode(body).unwrap().key == message.key;
        if !message.key.is_empty()
            && let Some((&old, _)) = self.messages.iter().find(|(_, body)| same_key(body))
        {
            self.remove(old);
        }
        self.messages.insert(message.msg_id, body.to_vec());
        self.next_id = self.next_id.max(message.msg_id + 1);
    }

    fn remove(&mut self, msg_id: u64) {
        self.messages.remove(&msg_id);
        for group in self.groups.values_mut() {
            group.pending.remove(&msg_id);
        }
    }

    fn change(&mut self, op: &Op<'_>) {
        match *op {
            Op::DelayEnded { delay_id } => drop(self.delayed.remove(&delay_id)),
            Op::Removed { ranges, .. } => {
                self.ids(ranges).into_iter().for_each(|id| self.remove(id));
            }
            Op::IdsReserved { below } => self.next_id = self.next_id.max(below),
            Op::GroupReset { group, start, next_id } => {
                self.next_id = self.next_id.max(next_id);
                let reset = GroupModel { cursors: start, pending: BTreeMap::new() };
                self.groups.insert(group.to_owned(), reset);
            }
            Op::Delivered { group, ranges, .. } => {
                for it in DeliveryRanges::decode(ranges).unwrap().iter() {
                    self.next_id = self.next_id.max(it.msg_id + 1);
                    let group = self.groups.entry(group.to_owned()).or_default();
                    let level = it.level.number();
                    let cursor = &mut group.cursors[it.level.index()];
                    let is_there = self.messages.contains_key(&it.msg_id);
                    // Messages are delivered in order: the record of what lies between is lost.
                    for (&msg_id, body) in &self.messages {
                        let between = (*cursor..it.msg_id).contains(&msg_id);
                        if between && Message::decode(body).unwrap().level == level {
                            *cursor = msg_id + 1;
                            group.pending.insert(msg_id, 1);
                        }
                    }
                    if is_there {
                        *cursor = (*cursor).max(it.msg_id + 1);
                        group.pending.insert(it.msg_id, it.count);
                    }
                }
            }
            Op::Acked { group, ranges, .. } => {
                for msg_id in self.ids(ranges) {
                    self.groups.entry(group.to_owned()).or_default().pending.remove(&msg_id);
                }
            }
            Op::GroupRemoved { group, .. } => drop(self.groups.remove(group)),
            Op::DeadLettered(dead) => {
                self.next_id = self.next_id.max(dead.msg_id + 1);
                let group = self.groups.entry(dead.group.to_owned()).or_default();
                group.pending.remove(&dead.msg_id);
            }
            Op::Returned { group, ranges, .. } => {
                self.ids(ranges);
                self.groups.entry(group.to_owned()).or_default();
            }
            Op::SentOnce(_) | Op::Tied(_) => {}
            Op::Updated(updated) => {
                self.policy = Policy::decode(updated.policy).unwrap().unwrap();
                self.expires_ms = updated.expires_ms;
                self.desc = updated.desc.to_owned();
            }
            Op::Purged(purged) => {
                self.next_id = self.next_id.max(purged.next_id);
                self.messages.clear();
                self.delayed.clear();
                self.groups.values_mut().for_each(|group| group.pending.clear());
            }
            _ => unreachable!("not about the contents of a mailbox"),
        }
    }

    fn ids(&mut self, ranges: &[u8]) -> Vec<u64> {
        let ids: Vec<u64> = IdRanges::decode(ranges).unwrap().iter().collect();
        self.next_id = ids.iter().fold(self.next_id, |next, id| next.max(id + 1));
        ids
    }

    /// The same after its delayed messages have become due.
    fn late(&self) -> MailboxModel {
        let mut late = self.clone();
        let mut delayed: Vec<Vec<u8>> = std::mem::take(&mut late.delayed).into_values().collect();
        delayed.sort_by_key(|body| Message::decode(body).unwrap().create_ms);
        for body in delayed {
            let stored = Message::decode(&body).unwrap();
            let (msg_id, create_ms) = (late.next_id, LATE.wall_ms);
            let message = Message { msg_id, create_ms, ..stored };
            let mut body = Vec::new();
            message.encode(&mut body);
            late.put(&message, &body);
        }
        if late.policy.tier == Tier::Memory {
            late.groups.clear();
        }
        late
    }
}
