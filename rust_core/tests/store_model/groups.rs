//! Groups of the model: who was given what, in the order it was given.

use mq9_core::mailbox::LEVELS;
use mq9_core::store::{Fetch, GroupFetch, MemberId};

use crate::mailbox::{Seen, cut};
use crate::model::{Model, Refusal, Reply};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Member {
    Named(String),
    /// A connection of one run of the broker.
    Conn(u32, u64),
}

/// A message given to the group and not acknowledged.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub msg_id: u64,
    pub count: u32,
    level: u8,
    /// Who has it; nobody, once it was returned or passed over by its member's next fetch.
    pub member: Option<Member>,
    /// Until when nobody else gets it.
    pub until_ms: Option<u64>,
    /// The connection that was given it, while that lease runs.
    pub conn: Option<u64>,
    /// How many were given before it.
    pub order: u64,
}

/// A message that is not there any more, and where it stood in a member's batch.
#[derive(Debug, Clone)]
pub struct Gone {
    pub msg_id: u64,
    pub member: Member,
    pub order: u64,
}

pub struct Group {
    pub name: String,
    pub cursors: [u64; LEVELS],
    /// In the order they were given.
    pub deliveries: Vec<Delivery>,
    /// Messages that left the mailbox while their member had more: with how many were given before.
    pub gone: Vec<Gone>,
    given: u64,
    pub start: [u64; LEVELS],
    /// When it was last fetched from, waited for or acknowledged.
    pub used_ms: u64,
}

/// What a member would get.
#[derive(Default)]
pub struct Plan {
    pub batch: Vec<Seen>,
    /// Messages that were delivered too often.
    dead: Vec<u64>,
}

impl Group {
    fn new(name: &str, start: [u64; LEVELS], used_ms: u64) -> Group {
        Group {
            name: name.to_owned(),
            cursors: start,
            deliveries: Vec::new(),
            gone: Vec::new(),
            given: 0,
            start,
            used_ms,
        }
    }

    /// The group has done with a message.
    pub fn forget(&mut self, msg_id: u64) {
        self.deliveries.retain(|delivery| delivery.msg_id != msg_id);
        self.tidy();
    }

    /// A message has left the mailbox.
    pub fn lose(&mut self, msg_id: u64) {
        if let Some(delivery) = self.pending(msg_id)
            && let Some(member) = delivery.member.clone()
        {
            let gone = Gone { msg_id, member, order: delivery.order };
            self.gone.push(gone);
        }
        self.forget(msg_id);
    }

    /// What has gone counts only while its member has more of the same batch.
    pub fn tidy(&mut self) {
        let deliveries = &self.deliveries;
        self.gone.retain(|gone| deliveries.iter().any(|d| d.member.as_ref() == Some(&gone.member)));
    }

    pub fn end_all_leases(&mut self) {
        self.deliveries.iter_mut().for_each(|delivery| delivery.until_ms = None);
    }

    pub fn pending(&mut self, msg_id: u64) -> Option<&mut Delivery> {
        self.deliveries.iter_mut().find(|delivery| delivery.msg_id == msg_id)
    }

    /// What ended or ends by `mono_ms` and has been delivered `max_deliver` times, by level and id.
    fn exhausted(&self, max_deliver: u32, mono_ms: u64) -> Vec<u64> {
        let mut dead: Vec<&Delivery> = self.deliveries.iter().collect();
        dead.retain(|d| d.count >= max_deliver && d.until_ms.is_none_or(|ms| ms <= mono_ms));
        dead.sort_by_key(|delivery| (delivery.level, delivery.msg_id));
        dead.iter().map(|delivery| delivery.msg_id).collect()
    }

    fn has_ending(&self, mono_ms: u64) -> bool {
        self.deliveries.iter().any(|d| d.until_ms.is_some_and(|ms| ms <= mono_ms))
    }

    /// Records a batch; true if the member held something that it was not given again.
    fn give(&mut self, member: &Member, batch: &[Seen], until_ms: u64, request: &Fetch) -> bool {
        for (message, _) in batch {
            self.forget(message.msg_id);
        }
        if request.held {
            self.gone.retain(|gone| gone.member != *member);
        }
        let mut passed_over = false;
        for delivery in &mut self.deliveries {
            if request.held && delivery.member.as_ref() == Some(member) {
                (delivery.member, delivery.until_ms) = (None, None);
                passed_over = true;
            }
        }
        for (message, count) in batch {
            let cursor = &mut self.cursors[usize::from(message.level) - 1];
            *cursor = (*cursor).max(message.msg_id + 1);
            self.given += 1;
            self.deliveries.push(Delivery {
                order: self.given,
                msg_id: message.msg_id,
                level: message.level,
                count: *count,
                member: Some(member.clone()),
                until_ms: Some(until_ms),
                conn: Some(request.conn),
            });
        }
        self.tidy();
        passed_over
    }
}

impl Model {
    /// Ends leases; what was delivered too often by then is moved.
    pub fn end_leases(&mut self, addresses: &[String]) {
        let mono_ms = self.now.mono_ms;
        for address in addresses {
            let Ok(mailbox) = self.get(address) else { continue };
            let max_deliver = mailbox.policy.max_deliver;
            let names: Vec<String> = mailbox.groups.iter().map(|g| g.name.clone()).collect();
            for (at, name) in names.iter().enumerate() {
                let Ok(mailbox) = self.get(address) else { continue };
                let group = &mut mailbox.groups[at];
                if !group.has_ending(mono_ms) {
                    continue;
                }
                for delivery in &mut group.deliveries {
                    delivery.until_ms = delivery.until_ms.filter(|&ms| ms > mono_ms);
                }
                if max_deliver > 0 {
                    for msg_id in group.exhausted(max_deliver, mono_ms) {
                        let _ = self.bury(address, name, msg_id, "max_deliver");
                    }
                }
                self.touch(address);
            }
        }
    }

    /// When the leases end that do until `mono_ms`, if two groups would move messages then: which
    /// group is first is nobody's promise.
    pub fn contested(&self, mono_ms: u64) -> Option<Vec<u64>> {
        let mut ends: Vec<u64> = Vec::new();
        let mut movers = 0;
        for mailbox in &self.mailboxes {
            let max_deliver = mailbox.policy.max_deliver;
            for group in &mailbox.groups {
                let dead = max_deliver > 0 && !group.exhausted(max_deliver, mono_ms).is_empty();
                movers += usize::from(dead && group.has_ending(mono_ms));
                ends.extend(group.deliveries.iter().filter_map(|d| d.until_ms));
            }
        }
        ends.retain(|&ms| ms <= mono_ms);
        ends.sort_unstable();
        ends.dedup();
        (movers > 1).then_some(ends)
    }

    pub fn fetch(&mut self, mut request: Fetch) -> Result<(Reply, [u64; LEVELS]), Refusal> {
        let max_groups = self.options.max_groups;
        let mono_ms = self.now.mono_ms;
        let mailbox = self.get(&request.address)?;
        let cursors = mailbox.first_ids(request.start);
        if let Some(GroupFetch { name, force, .. }) = &mut request.group {
            let full = mailbox.groups.len() >= max_groups;
            match mailbox.groups.iter_mut().find(|group| group.name == *name) {
                Some(group) if *force => {
                    *group = Group::new(name, cursors, mono_ms);
                    self.touch(&request.address);
                }
                Some(group) => group.used_ms = mono_ms,
                None if full => return Err(Refusal::TooManyGroups),
                None => mailbox.groups.push(Group::new(name, cursors, mono_ms)),
            }
            *force = false;
        }
        let batch = self.try_fetch(&request, &cursors);
        if batch.is_empty() && request.wait_ms > 0 && request.max_msgs > 0 {
            return Ok((Reply::Waiting, cursors));
        }
        Ok((Reply::Batch(batch), cursors))
    }

    /// Groups go that nobody has used for their time; a wait is use.
    pub fn drop_idle_groups(&mut self) {
        let (mono_ms, default_ms) = (self.now.mono_ms, self.options.group_ttl_ms);
        let waits: Vec<(String, String)> = self
            .waiters
            .iter()
            .filter_map(|w| {
                Some((w.request.address.clone(), w.request.group.as_ref()?.name.clone()))
            })
            .collect();
        for mailbox in &mut self.mailboxes {
            let ttl_ms = match mailbox.policy.group_ttl_ms {
                0 => default_ms,
                own => own,
            };
            mailbox.groups.retain_mut(|group| {
                let over = ttl_ms > 0 && group.used_ms.saturating_add(ttl_ms) <= mono_ms;
                if over && waits.contains(&(mailbox.address.clone(), group.name.clone())) {
                    group.used_ms = mono_ms;
                }
                !over || group.used_ms == mono_ms
            });
        }
    }

    /// A group was waited for until now.
    pub fn note_wait_used(&mut self, request: &Fetch) {
        let mono_ms = self.now.mono_ms;
        let Some(wanted) = &request.group else { return };
        let Ok(mailbox) = self.get(&request.address) else { return };
        for group in mailbox.groups.iter_mut().filter(|group| group.name == wanted.name) {
            group.used_ms = mono_ms;
        }
    }

    fn member(&self, group: &GroupFetch, conn: u64) -> Member {
        match &group.member {
            MemberId::Named(name) => Member::Named(name.clone()),
            MemberId::Conn => Member::Conn(self.epoch, conn),
        }
    }

    pub fn try_fetch(&mut self, request: &Fetch, cursors: &[u64; LEVELS]) -> Vec<Seen> {
        let Some(group) = &request.group else {
            let Ok(mailbox) = self.get(&request.address) else { return Vec::new() };
            let mut wanted: Vec<_> = mailbox.messages.iter().collect();
            wanted.retain(|message| {
                message.level <= request.max_level.number()
                    && message.msg_id >= cursors[usize::from(message.level) - 1]
            });
            wanted.sort_by_key(|message| (message.level, message.msg_id));
            return cut(wanted.into_iter(), request.max_msgs, request.max_bytes);
        };
        let member = self.member(group, request.conn);
        loop {
            let plan = self.plan(request, group, Some(&member));
            let mut moved = false;
            for msg_id in &plan.dead {
                let buried = self.bury(&request.address, &group.name, *msg_id, "max_deliver");
                moved |= buried.is_ok();
            }
            if plan.batch.is_empty() {
                // What was moved may have made room for something new.
                if moved {
                    continue;
                }
                return Vec::new();
            }
            let until = self.now.mono_ms + self.ack_wait(&request.address, request.ack_wait_ms);
            let mono_ms = self.now.mono_ms;
            self.group(&request.address, &group.name).used_ms = mono_ms;
            if self.group(&request.address, &group.name).give(&member, &plan.batch, until, request)
            {
                self.touch(&request.address);
            }
            if group.member == MemberId::Conn {
                self.holders.push((request.conn, request.address.clone()));
            }
            return plan.batch;
        }
    }

    pub fn plan(&self, request: &Fetch, wanted: &GroupFetch, member: Option<&Member>) -> Plan {
        let mut plan = Plan::default();
        let Some(mailbox) = self.find(&request.address) else { return plan };
        let Some(group) = mailbox.groups.iter().find(|group| group.name == wanted.name) else {
            return plan;
        };
        let policy = &mailbox.policy;
        let (mut total, mut new) = (0, 0);
        let mut messages: Vec<_> = mailbox.messages.iter().collect();
        messages.retain(|message| message.level <= request.max_level.number());
        messages.sort_by_key(|message| (message.level, message.msg_id));
        for message in messages {
            let given = group.deliveries.iter().find(|d| d.msg_id == message.msg_id);
            let is_new = message.msg_id >= group.cursors[usize::from(message.level) - 1];
            let pending = group.deliveries.len() - plan.dead.len() + new;
            let held = given.is_some_and(|d| d.until_ms.is_some());
            let again = held && given.is_some_and(|d| d.conn == Some(request.conn));
            let count = match given {
                Some(d)
                    if held
                        && (d.member.is_none() || d.member.as_ref() != member || !request.held) =>
                {
                    continue;
                }
                Some(delivery) => delivery.count,
                None if !is_new => continue,
                None if policy.max_ack_pending > 0
                    && pending >= policy.max_ack_pending as usize =>
                {
                    continue;
                }
                None => 0,
            };
            if plan.batch.len() >= request.max_msgs {
                break;
            }
            if !again && policy.max_deliver > 0 && count >= policy.max_deliver {
                plan.dead.push(message.msg_id);
                continue;
            }
            total += message.bytes();
            if total > request.max_bytes && !plan.batch.is_empty() {
                break;
            }
            new += usize::from(given.is_none());
            plan.batch.push((message.clone(), if again { count } else { count + 1 }));
        }
        plan
    }

    pub fn group(&mut self, address: &str, name: &str) -> &mut Group {
        let mailbox = self.get(address).unwrap();
        mailbox.groups.iter_mut().find(|group| group.name == name).unwrap()
    }

    pub fn ack_wait(&self, address: &str, asked_ms: u64) -> u64 {
        let policy = self.find(address).map_or(0, |mailbox| mailbox.policy.ack_wait_ms);
        [asked_ms, policy].into_iter().find(|&ms| ms > 0).unwrap_or(self.options.ack_wait_ms)
    }
}
