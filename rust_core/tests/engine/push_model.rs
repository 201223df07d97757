//! Readers, queue groups and an inbox beside a naive model: after every step each has been given exactly what the rules
//! say, in the order they say.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mq9_core::front::ConnId;
use mq9_core::mailbox::Policy;
use mq9_core::store::{Changes, Options};
use mq9_sim::SimDisk;
use serde_json::Value;

use crate::driver::Driver;
use crate::push::parse;

const LEVELS: [&str; 4] = ["critical", "urgent", "normal", "notify"];

pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) % end as u64) as usize
    }
}

/// A message, by level and then the order of sending.
#[derive(Debug, Clone)]
struct Sent {
    /// Unknown of a message that was delayed.
    msg_id: Option<u64>,
    expires_ms: u64,
    in_memory: bool,
    /// What replaces it.
    key: Option<usize>,
}

type Key = (usize, usize);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Own(usize),
    Queue(usize),
    Inbox,
}

#[derive(Debug)]
struct Subscription {
    sid: usize,
    conn: usize,
    kind: Kind,
    level: Option<usize>,
    /// How many more messages it takes.
    left: Option<usize>,
    /// What it was given, in that order.
    had: Vec<Key>,
}

impl Subscription {
    fn wants(&self, key: Key) -> bool {
        self.level.is_none_or(|level| level == key.0)
    }
}

struct World {
    driver: Driver,
    disk: SimDisk,
    dice: Dice,
    sender: ConnId,
    /// Connections by number, and whether they keep their answers to themselves.
    conns: BTreeMap<usize, (ConnId, bool)>,
    owed: BTreeMap<usize, usize>,
    subscriptions: Vec<Subscription>,
    sent: BTreeMap<Key, Sent>,
    count: usize,
    /// Of payloads.
    names: BTreeMap<String, Key>,
    /// Messages that are not due yet: when, the order of sending, level and payload.
    delayed: BTreeSet<(u64, usize, usize, String)>,
    /// The mailbox keeps the newest message alone.
    latest: bool,
    /// What was given of each kind, and to which connection and subscription.
    given: BTreeMap<Kind, BTreeMap<Key, (usize, usize)>>,
    /// What was read of the inbox.
    read: BTreeSet<Key>,
    pushed: usize,
}

impl World {
    fn new(seed: u64) -> World {
        let disk = SimDisk::new();
        let mut driver = Driver::on(Arc::new(disk.clone())).unwrap();
        let latest = seed.is_multiple_of(5);
        driver.create("m", Policy { latest, ..Policy::default() });
        let sender = driver.client();
        World {
            driver,
            disk,
            dice: Dice(seed),
            sender,
            conns: BTreeMap::new(),
            owed: BTreeMap::new(),
            subscriptions: Vec::new(),
            sent: BTreeMap::new(),
            count: 0,
            names: BTreeMap::new(),
            delayed: BTreeSet::new(),
            latest,
            given: BTreeMap::new(),
            read: BTreeSet::new(),
            pushed: 0,
        }
    }

    fn step(&mut self) {
        match self.dice.below(20) {
            0..7 => self.send(),
            7..10 => self.subscribe(),
            10 => self.unsubscribe(),
            11 | 12 => self.delete(),
            13 | 14 => {
                let ms = self.dice.below(900) as u64;
                self.driver.pass_ms(ms);
                self.send_what_is_due();
            }
            15 => self.lose_connection(),
            16 | 17 => self.change_mood(),
            18 => self.query(),
            _ if self.dice.below(4) == 0 => self.restart(),
            _ if self.dice.below(6) == 0 => self.remove_mailbox(),
            _ => {}
        }
        self.settle();
    }

    fn is_alive(&self, sent: &Sent) -> bool {
        sent.expires_ms == 0 || self.driver.now.wall_ms < sent.expires_ms
    }

    fn send(&mut self) {
        let level = self.dice.below(4);
        let ttl_s = [0, 0, 1, 2][self.dice.below(4)];
        let key = (self.dice.below(4) == 0).then(|| self.dice.below(2));
        let in_memory = !self.latest && key.is_none() && self.dice.below(4) == 0;
        let delay_ms = if key.is_none() && !in_memory && self.dice.below(5) == 0 {
            1 + self.dice.below(1500) as u64
        } else {
            0
        };
        self.count += 1;
        let mut headers = format!("mq9-priority: {}\r\n", LEVELS[level]);
        if delay_ms > 0 {
            headers += &format!("mq9-delay-ms: {delay_ms}\r\n");
        } else if ttl_s > 0 {
            headers += &format!("mq9-ttl: {ttl_s}\r\n");
        }
        if in_memory {
            headers += "mq9-persist: false\r\n";
        }
        if let Some(key) = key {
            headers += &format!("mq9-key: k{key}\r\n");
        }
        let payload = format!("p{}", self.count);
        let reply = self.driver.ask(self.sender, "SEND.m", &headers, &payload);
        let reply: Value = serde_json::from_str(&reply).unwrap();
        let now_ms = self.driver.now.wall_ms;
        if delay_ms > 0 {
            assert_eq!(reply["msg_id"], -1, "{reply}");
            self.delayed.insert((now_ms + delay_ms, self.count, level, payload));
            return;
        }
        let msg_id = Some(reply["msg_id"].as_u64().unwrap());
        let expires_ms = if ttl_s > 0 { now_ms + ttl_s * 1000 } else { 0 };
        self.arrives(level, payload, Sent { msg_id, expires_ms, in_memory, key });
    }

    /// A message has its place in the mailbox.
    fn arrives(&mut self, level: usize, payload: String, sent: Sent) {
        let replaced = |of: &Sent| self.latest || (sent.key.is_some() && of.key == sent.key);
        self.sent.retain(|_, of| !replaced(of));
        self.count += 1;
        self.names.insert(payload, (level, self.count));
        self.sent.insert((level, self.count), sent);
    }

    fn send_what_is_due(&mut self) {
        while let Some(first) = self.delayed.first().cloned() {
            let (due_ms, _, level, payload) = first.clone();
            if due_ms > self.driver.now.wall_ms {
                return;
            }
            self.delayed.remove(&first);
            let sent = Sent { msg_id: None, expires_ms: 0, in_memory: false, key: None };
            self.arrives(level, payload, sent);
        }
    }

    /// The mailbox goes, and everybody is told; then there is another one.
    fn remove_mailbox(&mut self) {
        let now = self.driver.now;
        let next_ms = now.wall_ms + 1;
        let is_due = self.delayed.first().is_some_and(|first| first.0 <= next_ms);
        if !is_due && self.dice.below(2) == 0 {
            // Its time is over next, and nothing else happens until then.
            let created_ms = self.driver.store().mailbox("m", now).unwrap().created_ms;
            let changes = Changes { ttl_ms: Some(next_ms - created_ms), desc: None };
            self.driver.store().update_mailbox("m", changes, |_| {}, now).unwrap();
            self.driver.pass_ms(1);
        } else {
            self.driver.store().remove_mailbox("m", now).unwrap();
            self.driver.settle();
        }
        let mut told: Vec<usize> = Vec::new();
        for (&conn, &(id, is_mute)) in &self.conns {
            let (lines, asked) = parse(&self.driver.wire(id));
            for line in lines {
                assert!(line.ends_with(" 404 mailbox m does not exist"), "{line}");
                told.push(line.split(' ').next().unwrap().parse().unwrap());
            }
            if is_mute {
                *self.owed.entry(conn).or_default() += asked;
            } else {
                self.driver.feed(id, "PONG\r\n".repeat(asked).as_bytes());
            }
        }
        told.sort_unstable();
        let mut all: Vec<usize> = self.subscriptions.drain(..).map(|of| of.sid).collect();
        all.sort_unstable();
        assert_eq!(told, all, "who was told that the mailbox has gone");
        self.sent.clear();
        self.delayed.clear();
        self.given.clear();
        self.read.clear();
        self.driver.create("m", Policy { latest: self.latest, ..Policy::default() });
    }

    fn subscribe(&mut self) {
        if self.subscriptions.len() > 12 {
            return self.lose_connection();
        }
        let conn = self.dice.below(5);
        if !self.conns.contains_key(&conn) {
            let id = self.driver.client();
            self.conns.insert(conn, (id, false));
        }
        self.count += 1;
        let sid = self.count + 10;
        let level = (self.dice.below(3) == 0).then(|| self.dice.below(4));
        let kind = match self.dice.below(4) {
            0 => Kind::Own(sid),
            1 => Kind::Queue(self.dice.below(2)),
            _ => Kind::Inbox,
        };
        let prefix = if kind == Kind::Inbox { "INBOX" } else { "MAILBOX.MSG" };
        let word = level.map_or("*", |level| LEVELS[level]);
        let queue = if let Kind::Queue(nth) = kind { format!("q{nth} ") } else { String::new() };
        let mut text = format!("SUB $mq9.AI.{prefix}.m.{word} {queue}{sid}\r\n");
        let is_queue = matches!(kind, Kind::Queue(_));
        let left = (!is_queue && self.dice.below(3) == 0).then(|| 1 + self.dice.below(4));
        if let Some(max) = left {
            text += &format!("UNSUB {sid} {max}\r\n");
        }
        self.driver.feed(self.conns[&conn].0, text.as_bytes());
        self.subscriptions.push(Subscription { sid, conn, kind, level, left, had: Vec::new() });
    }

    fn unsubscribe(&mut self) {
        if self.subscriptions.is_empty() {
            return;
        }
        let at = self.dice.below(self.subscriptions.len());
        let Subscription { sid, conn, kind, .. } = self.subscriptions[at];
        let max = if matches!(kind, Kind::Queue(_)) { 0 } else { self.dice.below(6) };
        self.driver.feed(self.conns[&conn].0, format!("UNSUB {sid} {max}\r\n").as_bytes());
        let had = &self.subscriptions[at].had;
        if max > had.len() {
            self.subscriptions[at].left = Some(max - had.len());
            return;
        }
        if kind == Kind::Inbox && max > 0 {
            // The client passes over what is beyond the maximum, unless it has answered for it already.
            let (out, read) = (self.given.entry(kind).or_default(), &self.read);
            let surplus = &had[max..];
            out.retain(|key, (_, of)| *of != sid || !surplus.contains(key) || read.contains(key));
        }
        self.end(|of| of.sid == sid);
    }

    /// Subscriptions have ended: what members of queue groups had goes to others.
    fn end(&mut self, ended: impl Fn(&Subscription) -> bool) {
        let (gone, left) = std::mem::take(&mut self.subscriptions).into_iter().partition(ended);
        self.subscriptions = left;
        let gone: Vec<Subscription> = gone;
        for of in &gone {
            if let (Kind::Queue(_), Some(given)) = (of.kind, self.given.get_mut(&of.kind)) {
                given.retain(|_, (_, sid)| *sid != of.sid);
            }
            if of.kind != Kind::Inbox && !self.subscriptions.iter().any(|it| it.kind == of.kind) {
                self.given.remove(&of.kind);
            }
        }
    }

    fn delete(&mut self) {
        let Some((&key, sent)) = self.sent.iter().nth(self.dice.below(self.sent.len().max(1)))
        else {
            return;
        };
        let (msg_id, alive, now) = (sent.msg_id, self.is_alive(sent), self.driver.now);
        let Some(msg_id) = msg_id else { return };
        let outcome = self.driver.store().delete("m", msg_id, now);
        assert!(outcome.is_ok() || !alive, "{key:?}: {outcome:?}");
        self.sent.remove(&key);
    }

    fn lose_connection(&mut self) {
        let conn = self.dice.below(5);
        let Some((id, _)) = self.conns.remove(&conn) else { return };
        self.driver.leave(id);
        self.forget(conn);
    }

    /// A connection has gone: what it has not answered for is unread.
    fn forget(&mut self, conn: usize) {
        self.owed.remove(&conn);
        let out = self.given.entry(Kind::Inbox).or_default();
        let read = &self.read;
        out.retain(|key, (of, _)| *of != conn || read.contains(key));
        self.end(|of| of.conn == conn);
    }

    /// A connection keeps its answers to itself from now on, or gives them.
    fn change_mood(&mut self) {
        let conn = self.dice.below(5);
        let Some((id, is_mute)) = self.conns.get_mut(&conn) else { return };
        *is_mute = !*is_mute;
        let owed = self.owed.remove(&conn).unwrap_or_default();
        self.driver.feed(*id, "PONG\r\n".repeat(owed).as_bytes());
    }

    fn query(&mut self) {
        let out = self.given.entry(Kind::Inbox).or_default().clone();
        let unread = self.sent.iter().filter(|(key, _)| !out.contains_key(*key));
        let unread: Vec<Key> =
            unread.filter(|(_, of)| self.is_alive(of)).map(|(k, _)| *k).collect();
        let reply = self.driver.unread(self.sender, "m").unwrap();
        let messages = reply["messages"].as_array().unwrap();
        let seen = messages.iter().map(|message| self.names[message["payload"].as_str().unwrap()]);
        let seen: Vec<Key> = seen.collect();
        assert_eq!(reply["unread"], unread.len());
        assert_eq!(seen, unread);
        for key in seen {
            self.given.entry(Kind::Inbox).or_default().insert(key, (usize::MAX, 0));
            self.read.insert(key);
        }
    }

    fn restart(&mut self) {
        self.settle();
        for conn in std::mem::take(&mut self.conns).into_keys() {
            self.forget(conn);
        }
        let now = self.driver.now;
        let empty = Driver::on(Arc::new(SimDisk::new())).unwrap();
        drop(std::mem::replace(&mut self.driver, empty));
        let disk = Arc::new(self.disk.clone());
        self.driver = Driver::with(disk, Options::default(), now).unwrap();
        self.sender = self.driver.client();
        self.sent.retain(|_, sent| !sent.in_memory);
    }

    /// Lets everybody be given what there is, and compares.
    fn settle(&mut self) {
        let mut came: BTreeMap<usize, Vec<Key>> = BTreeMap::new();
        loop {
            let mut is_quiet = true;
            self.driver.settle();
            for (&conn, &(id, is_mute)) in &self.conns {
                let (lines, asked) = parse(&self.driver.wire(id));
                is_quiet &= lines.is_empty() && asked == 0;
                for line in lines {
                    let words: Vec<&str> = line.split(' ').collect();
                    let sid: usize = words[0].parse().unwrap_or_else(|_| panic!("{line}"));
                    came.entry(sid).or_default().push(self.names[words[2]]);
                }
                if is_mute {
                    *self.owed.entry(conn).or_default() += asked;
                } else {
                    self.driver.feed(id, "PONG\r\n".repeat(asked).as_bytes());
                }
            }
            if is_quiet {
                break;
            }
        }
        let kinds: BTreeSet<Kind> = self.subscriptions.iter().map(|of| of.kind).collect();
        for kind in kinds {
            self.compare(kind, &mut came);
        }
        assert!(came.is_empty(), "given to nobody who subscribed: {came:?}");
        let out = self.given.entry(Kind::Inbox).or_default();
        let answered = out
            .iter()
            .filter(|(_, (conn, _))| self.conns.get(conn).is_some_and(|(_, is_mute)| !is_mute));
        self.read.extend(answered.map(|(key, _)| *key));
    }

    fn compare(&mut self, kind: Kind, came: &mut BTreeMap<usize, Vec<Key>>) {
        let members: Vec<&Subscription> =
            self.subscriptions.iter().filter(|of| of.kind == kind).collect();
        let before = self.given.get(&kind).cloned().unwrap_or_default();
        let due = self.sent.iter().filter(|(key, sent)| {
            let wanted = members.iter().any(|of| of.wants(**key));
            wanted && !before.contains_key(*key) && self.is_alive(sent)
        });
        let due: Vec<Key> = due.map(|(key, _)| *key).collect();
        let mut all = Vec::new();
        let mut given = before;
        let (mut full, mut lists) = (BTreeSet::new(), BTreeMap::new());
        for member in &members {
            let own = came.remove(&member.sid).unwrap_or_default();
            assert!(own.is_sorted(), "{kind:?} out of order: {own:?}");
            assert!(own.len() <= member.left.unwrap_or(usize::MAX), "{member:?} was given {own:?}");
            for &key in &own {
                assert!(member.wants(key), "{member:?} was given {key:?}");
                given.insert(key, (member.conn, member.sid));
            }
            if member.left == Some(own.len()) {
                full.insert(member.sid);
            }
            all.extend(own.iter().copied());
            lists.insert(member.sid, own);
        }
        all.sort_unstable();
        // What was not given is wanted by those alone who have had all they asked for, and did not come before what was.
        let mut missing = due.iter().filter(|key| !all.contains(key));
        let is_full =
            |key: &Key| members.iter().all(|of| !of.wants(*key) || full.contains(&of.sid));
        assert!(missing.clone().all(is_full), "{kind:?}: {missing:?} of {due:?} were not given");
        if let [_] = members[..] {
            assert!(
                missing.all(|key| all.iter().all(|of| of < key)),
                "{kind:?}: {all:?} of {due:?}"
            );
        }
        assert!(all.iter().all(|key| due.contains(key)), "{kind:?}: {all:?} instead of {due:?}");
        assert!(all.is_sorted_by(|a, b| a < b), "{kind:?}: {all:?} has some twice");
        self.pushed += all.len();
        for of in &mut self.subscriptions {
            let had = lists.remove(&of.sid).unwrap_or_default();
            of.left = of.left.map(|left| left - had.len());
            of.had.extend(had);
        }
        self.given.insert(kind, given);
        self.end(|of| full.contains(&of.sid));
    }
}

#[test]
fn readers_are_given_what_a_naive_model_says() {
    let mut pushed = 0;
    for seed in 0..60 {
        let mut world = World::new(seed);
        for _ in 0..150 {
            world.step();
        }
        pushed += world.pushed;
    }
    assert!(pushed > 5000, "{pushed} messages were pushed, too few to show anything");
}
