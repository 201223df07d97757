//! A store as the protocol describes it, written to be obviously right: lists, linear scans, no disk.
//!
//! Owns the list of mailboxes, their messages and the passing of time; groups are in `groups`. It must not share code
//! with the store beyond the types of requests and replies.

use mq9_core::error::Error;
use mq9_core::mailbox::{Policy, Tier};
use mq9_core::store::{GroupInfo, MailboxInfo, NewMailbox, Options, Query, Send};
use mq9_core::time::Now;

use crate::groups::Group;
use crate::mailbox::{Mailbox, Message, Seen, cut};
use crate::waiters::Waiter;

/// How many `msg_id`s a memory mailbox skips at most when its messages are lost.
const RESERVED_IDS: u64 = 65_536;

/// What a command is answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    Done,
    Sent(Option<u64>),
    Batch(Vec<Seen>),
    Waiting,
    Purged(u64),
    Once(Option<u64>, bool),
    Info(Box<MailboxInfo>),
    Refused(Refusal),
}

/// The variant of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    NotFound,
    Exists,
    NoMessage,
    Field,
    TooLarge,
    Full,
    TooManyGroups,
    NoGroup,
    NotGiven,
    Unexpected,
}

impl From<&Error> for Refusal {
    fn from(error: &Error) -> Refusal {
        match error {
            Error::MailboxNotFound(_) => Refusal::NotFound,
            Error::MailboxExists(_) => Refusal::Exists,
            Error::MessageNotFound => Refusal::NoMessage,
            Error::InvalidField { .. } => Refusal::Field,
            Error::MessageTooLarge { .. } => Refusal::TooLarge,
            Error::MailboxFull { .. } => Refusal::Full,
            Error::TooManyGroups { .. } => Refusal::TooManyGroups,
            Error::GroupNotFound { .. } => Refusal::NoGroup,
            Error::NotGiven { .. } => Refusal::NotGiven,
            _ => Refusal::Unexpected,
        }
    }
}

pub struct Model {
    pub options: Options,
    pub now: Now,
    pub epoch: u32,
    pub mailboxes: Vec<Mailbox>,
    pub waiters: Vec<Waiter>,
    /// Mailboxes in which something may have become available to a waiter.
    pub touched: Vec<String>,
    /// Waits that are over.
    pub over: Vec<(u64, Reply)>,
    /// Where connections have been given something.
    pub holders: Vec<(u64, String)>,
}

impl Model {
    pub fn new(options: Options, now: Now) -> Model {
        Model {
            options,
            now,
            epoch: 1,
            mailboxes: Vec::new(),
            waiters: Vec::new(),
            touched: Vec::new(),
            over: Vec::new(),
            holders: Vec::new(),
        }
    }

    pub fn find(&self, address: &str) -> Option<&Mailbox> {
        self.mailboxes.iter().find(|mailbox| mailbox.address == address)
    }

    pub fn get(&mut self, address: &str) -> Result<&mut Mailbox, Refusal> {
        let found = self.mailboxes.iter_mut().find(|mailbox| mailbox.address == address);
        found.ok_or(Refusal::NotFound)
    }

    pub fn touch(&mut self, address: &str) {
        if self.waiters.iter().any(|waiter| waiter.request.address == address) {
            self.touched.push(address.to_owned());
        }
    }

    /// The process ended and the store was opened again.
    pub fn reopen(&mut self, now: Now) {
        self.now = now;
        self.epoch += 1;
        self.waiters.clear();
        self.touched.clear();
        self.over.clear();
        self.holders.clear();
        for mailbox in &mut self.mailboxes {
            if mailbox.policy.tier == Tier::Memory {
                mailbox.messages.clear();
                mailbox.delayed.clear();
                mailbox.sent_ids.clear();
                mailbox.groups.clear();
                mailbox.next_id = mailbox.next_id.max(mailbox.reserved_ids);
            }
            mailbox.groups.iter_mut().for_each(Group::end_all_leases);
            mailbox.groups.iter_mut().for_each(|group| group.used_ms = now.mono_ms);
        }
    }

    /// Time has come to `now`.
    pub fn tick(&mut self, now: Now) {
        self.now = now;
        let over = |expires_ms: u64| expires_ms != 0 && now.wall_ms >= expires_ms;
        let addresses: Vec<String> = self.mailboxes.iter().map(|m| m.address.clone()).collect();
        for address in &addresses {
            if self.get(address).is_ok_and(|mailbox| over(mailbox.expires_ms)) {
                self.drop_mailbox(address);
                continue;
            }
            let Ok(mailbox) = self.get(address) else { continue };
            let expired = mailbox.messages.iter().filter(|m| over(m.expires_ms)).map(|m| m.msg_id);
            for msg_id in expired.collect::<Vec<_>>() {
                self.take(address, msg_id);
            }
            self.publish_due(address);
        }
        self.end_leases(&addresses);
        self.drop_idle_groups();
        let (over, waiting) =
            self.waiters.drain(..).partition(|waiter| waiter.until_ms <= now.mono_ms);
        self.waiters = waiting;
        let over: Vec<Waiter> = over;
        over.iter().for_each(|waiter| self.note_wait_used(&waiter.request));
        self.over.extend(over.into_iter().map(|waiter| (waiter.id, Reply::Batch(Vec::new()))));
    }

    fn publish_due(&mut self, address: &str) {
        let wall_ms = self.now.wall_ms;
        let Ok(mailbox) = self.get(address) else { return };
        let delayed = std::mem::take(&mut mailbox.delayed);
        let (mut due, later): (Vec<_>, Vec<_>) =
            delayed.into_iter().partition(|message| message.create_ms <= wall_ms);
        mailbox.delayed = later;
        due.sort_by_key(|message| message.create_ms);
        for mut message in due {
            if message.expires_ms == 0 || wall_ms < message.expires_ms {
                message.create_ms = wall_ms;
                self.put(address, message);
            }
        }
    }

    fn check_policy(&self, address: &str, policy: &Policy) -> Result<(), Refusal> {
        if policy.max_deliver > 0 && policy.dead_letter.is_none() {
            return Err(Refusal::Field);
        }
        let mut next = policy.dead_letter.clone();
        while let Some(target) = next {
            if *target == *address {
                return Err(Refusal::Field);
            }
            let mailbox = self.mailboxes.iter().find(|mailbox| *mailbox.address == *target);
            next = mailbox.and_then(|mailbox| mailbox.policy.dead_letter.clone());
        }
        Ok(())
    }

    /// `None` if delayed messages alone are more than the mailbox may hold then: when they go is nobody's promise.
    pub fn update(
        &mut self,
        address: &str,
        ttl_ms: Option<u64>,
        change: impl Fn(&mut Policy),
    ) -> Option<Result<Reply, Refusal>> {
        let now_ms = self.now.wall_ms;
        let Ok(mailbox) = self.get(address) else { return Some(Err(Refusal::NotFound)) };
        let mut policy = mailbox.policy.clone();
        change(&mut policy);
        policy.tier = mailbox.policy.tier;
        let expires_ms = match ttl_ms {
            None => mailbox.expires_ms,
            Some(0) => 0,
            Some(ttl_ms) => mailbox.created_ms + ttl_ms,
        };
        if let Err(refusal) = self.check_policy(address, &policy) {
            return Some(Err(refusal));
        }
        if expires_ms != 0 && expires_ms <= now_ms {
            return Some(Err(Refusal::Field));
        }
        let Ok(mailbox) = self.get(address) else { return None };
        mailbox.expires_ms = expires_ms;
        mailbox.policy = policy;
        while let Ok(mailbox) = self.get(address)
            && mailbox.has_surplus()
        {
            let oldest = mailbox.messages.first()?.msg_id;
            self.take(address, oldest);
        }
        self.touch(address);
        Some(Ok(Reply::Done))
    }

    pub fn create(&mut self, new: &NewMailbox<'_>) -> Result<Reply, Refusal> {
        self.check_policy(new.address, &new.policy)?;
        if self.get(new.address).is_ok() {
            return Err(Refusal::Exists);
        }
        let created_ms = self.now.wall_ms;
        self.mailboxes.push(Mailbox {
            address: new.address.to_owned(),
            policy: new.policy.clone(),
            next_id: 0,
            messages: Vec::new(),
            groups: Vec::new(),
            created_ms,
            expires_ms: if new.ttl_ms > 0 { created_ms + new.ttl_ms } else { 0 },
            delayed: Vec::new(),
            next_delay: 0,
            sent_ids: Vec::new(),
            reserved_ids: 0,
        });
        Ok(Reply::Done)
    }

    pub fn remove(&mut self, address: &str) -> Result<Reply, Refusal> {
        self.get(address)?;
        self.drop_mailbox(address);
        Ok(Reply::Done)
    }

    fn drop_mailbox(&mut self, address: &str) {
        self.mailboxes.retain(|mailbox| mailbox.address != address);
        self.holders.retain(|(_, held)| held != address);
        self.refuse_waiters(Refusal::NotFound, |waiter| waiter.request.address == address);
    }

    pub fn remove_group(&mut self, address: &str, group: &str) -> Result<Reply, Refusal> {
        let groups = &mut self.get(address)?.groups;
        let at = groups.iter().position(|g| g.name == group).ok_or(Refusal::NoGroup)?;
        groups.remove(at);
        self.refuse_waiters(Refusal::NoGroup, |waiter| {
            let of = waiter.request.group.as_ref();
            waiter.request.address == address && of.is_some_and(|of| of.name == group)
        });
        Ok(Reply::Done)
    }

    fn refuse_waiters(&mut self, refusal: Refusal, which: impl Fn(&Waiter) -> bool) {
        let (refused, waiting) = self.waiters.drain(..).partition(|waiter| which(waiter));
        self.waiters = waiting;
        let refused: Vec<Waiter> = refused;
        self.over.extend(refused.into_iter().map(|waiter| (waiter.id, Reply::Refused(refusal))));
    }

    pub fn send(&mut self, address: &str, send: &Send<'_>) -> Result<Reply, Refusal> {
        self.accept(address, send, true)
    }

    pub fn send_once(
        &mut self,
        address: &str,
        id: &str,
        send: &Send<'_>,
    ) -> Result<Reply, Refusal> {
        let now_ms = self.now.wall_ms;
        let mailbox = self.get(address)?;
        let window = mailbox.dedup_window();
        if let Some((_, sent_ms, msg_id)) = mailbox.sent_ids.iter().find(|(sent, ..)| sent == id)
            && now_ms < sent_ms + window
        {
            return Ok(Reply::Once(*msg_id, true));
        }
        let Reply::Sent(msg_id) = self.send(address, send)? else {
            return Err(Refusal::Unexpected);
        };
        let mailbox = self.get(address)?;
        mailbox.sent_ids.retain(|(sent, ..)| sent != id);
        mailbox.sent_ids.push((id.to_owned(), now_ms, msg_id));
        Ok(Reply::Once(msg_id, false))
    }

    /// Whether an id may or may not be known: its time was over before the clock was set back.
    pub fn is_vague(&self, address: &str, id: &str, latest_ms: u64) -> bool {
        self.find(address).is_some_and(|mailbox| {
            let mut sent = mailbox.sent_ids.iter().filter(|(sent, ..)| sent == id);
            sent.any(|(_, sent_ms, _)| {
                let until = sent_ms + mailbox.dedup_window();
                self.now.wall_ms < until && until <= latest_ms
            })
        })
    }

    /// The number of one of the delayed messages, or one that there is not.
    pub fn delay_id(&self, address: &str, nth: usize) -> u64 {
        let delayed = self.find(address).and_then(|mailbox| mailbox.delayed.get(nth));
        delayed.map_or(1000, |message| message.msg_id)
    }

    pub fn cancel(&mut self, address: &str, delay_id: u64) -> Result<Reply, Refusal> {
        let now_ms = self.now.wall_ms;
        let mailbox = self.get(address)?;
        let over = |message: &Message| (1..=now_ms).contains(&message.expires_ms);
        let found = mailbox.delayed.iter().position(|m| m.msg_id == delay_id && !over(m));
        mailbox.delayed.remove(found.ok_or(Refusal::NoMessage)?);
        Ok(Reply::Done)
    }

    pub fn list_delayed(
        &mut self,
        address: &str,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Reply, Refusal> {
        let now_ms = self.now.wall_ms;
        let listed = self.get(address)?.delayed.iter().filter(|message| {
            after.is_none_or(|id| message.msg_id > id)
                && !(1..=now_ms).contains(&message.expires_ms)
        });
        Ok(Reply::Batch(cut(listed, limit, u64::MAX)))
    }

    /// Dead letters are not held to the size of what may be sent.
    pub fn accept(
        &mut self,
        address: &str,
        send: &Send<'_>,
        limited: bool,
    ) -> Result<Reply, Refusal> {
        let now_ms = self.now.wall_ms;
        let mailbox = self.get(address)?;
        let policy = mailbox.policy.clone();
        let own_ms = match send.ttl_ms {
            0 => policy.message_ttls.get(send.level),
            Policy::NEVER => 0,
            own_ms => own_ms,
        };
        let lives = [own_ms, policy.max_age_ms].into_iter().filter(|&ms| ms > 0).min();
        let message = Message {
            msg_id: 0,
            level: send.level.number(),
            sent_ms: now_ms,
            create_ms: now_ms + send.delay_ms,
            expires_ms: lives.map_or(0, |ms| now_ms + ms),
            address: address.to_owned(),
            key: send.key.to_owned(),
            tags: send.tags.to_owned(),
            headers: String::from_utf8_lossy(send.headers).into_owned(),
            payload: send.payload.to_vec(),
        };
        if limited && policy.max_msg_size > 0 && message.bytes() > policy.max_msg_size {
            return Err(Refusal::TooLarge);
        }
        let delayed = send.delay_ms > 0;
        let key = if delayed { "" } else { send.key };
        let evicted = mailbox.room_for(message.bytes(), key)?;
        for msg_id in evicted {
            self.take(address, msg_id);
        }
        if delayed {
            let mailbox = self.get(address)?;
            let msg_id = mailbox.next_delay;
            mailbox.next_delay += 1;
            mailbox.delayed.push(Message { msg_id, ..message });
            self.touch(address);
            return Ok(Reply::Sent(None));
        }
        Ok(Reply::Sent(Some(self.put(address, message))))
    }

    /// A message gets its `msg_id`; what it replaces goes.
    fn put(&mut self, address: &str, mut message: Message) -> u64 {
        let Ok(mailbox) = self.get(address) else { return 0 };
        let msg_id = mailbox.next_id;
        message.msg_id = msg_id;
        if mailbox.policy.tier == Tier::Memory && msg_id >= mailbox.reserved_ids {
            mailbox.reserved_ids = msg_id + RESERVED_IDS;
        }
        let latest = mailbox.policy.latest;
        let replaced = |old: &&Message| latest || (!old.key.is_empty() && old.key == message.key);
        let gone: Vec<u64> = mailbox.messages.iter().filter(replaced).map(|m| m.msg_id).collect();
        mailbox.next_id += 1;
        mailbox.messages.push(message);
        for msg_id in gone {
            self.take(address, msg_id);
        }
        self.touch(address);
        msg_id
    }

    /// A message leaves its mailbox and every group of it.
    pub fn take(&mut self, address: &str, msg_id: u64) {
        if let Ok(mailbox) = self.get(address) {
            mailbox.messages.retain(|message| message.msg_id != msg_id);
            mailbox.groups.iter_mut().for_each(|group| group.lose(msg_id));
            self.touch(address);
        }
    }

    pub fn delete(&mut self, address: &str, msg_id: u64) -> Result<Reply, Refusal> {
        let mailbox = self.get(address)?;
        if !mailbox.messages.iter().any(|message| message.msg_id == msg_id) {
            return Err(Refusal::NoMessage);
        }
        self.take(address, msg_id);
        Ok(Reply::Done)
    }

    pub fn purge(&mut self, address: &str) -> Result<Reply, Refusal> {
        let mailbox = self.get(address)?;
        let purged = (mailbox.messages.len() + mailbox.delayed.len()) as u64;
        mailbox.delayed.clear();
        for msg_id in mailbox.messages.iter().map(|message| message.msg_id).collect::<Vec<_>>() {
            self.take(address, msg_id);
        }
        self.touch(address);
        Ok(Reply::Purged(purged))
    }

    pub fn query(&mut self, address: &str, query: &Query<'_>) -> Result<Reply, Refusal> {
        let mut found: Vec<&Message> = self.get(address)?.messages.iter().collect();
        found.retain(|message| {
            query.key.is_none_or(|key| !key.is_empty() && message.key == key)
                && (query.tags.is_empty()
                    || message.tags.split(',').any(|tag| query.tags.contains(&tag)))
                && message.create_ms >= query.since_ms
                && query.after_id.is_none_or(|id| message.msg_id > id)
                && query.before_id.is_none_or(|id| message.msg_id < id)
        });
        if query.newest {
            found.reverse();
        }
        let mut batch = cut(found.into_iter(), query.limit, query.max_bytes);
        if query.newest {
            batch.reverse();
        }
        Ok(Reply::Batch(batch))
    }

    pub fn info(&mut self, address: &str) -> Result<Reply, Refusal> {
        let mailbox = self.get(address)?;
        let groups = mailbox.groups.iter().map(|group| GroupInfo {
            name: group.name.clone(),
            cursors: group.cursors,
            outstanding: group.deliveries.len() as u64,
        });
        let mut groups: Vec<GroupInfo> = groups.collect();
        groups.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Reply::Info(Box::new(MailboxInfo {
            address: mailbox.address.clone(),
            desc: String::new(),
            created_ms: mailbox.created_ms,
            expires_ms: mailbox.expires_ms,
            messages: mailbox.messages.len() as u64,
            delayed: mailbox.delayed.len() as u64,
            bytes: mailbox.bytes(),
            sent_id_bytes: 0,
            next_id: mailbox.next_id,
            policy: mailbox.policy.clone(),
            groups,
        })))
    }
}
