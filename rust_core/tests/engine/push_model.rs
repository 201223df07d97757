//! Readers, queue groups and an inbox beside a naive model: after every step each has been given exactly what the rules
//! say, in the order they say.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mq9_core::front::ConnId;
use mq9_core::mailbox::Policy;
use mq9_core::store::Options;
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
    msg_id: u64,
    expires_ms: u64,
    in_memory: bool,
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
        driver.create("m", Policy::default());
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
            }
            15 => self.lose_connection(),
            16 | 17 => self.change_mood(),
            18 => self.query(),
            _ if self.dice.below(4) == 0 => self.restart(),
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
        let in_memory = self.dice.below(4) == 0;
        let key = (level, self.count);
        self.count += 1;
        let mut headers = format!("mq9-priority: {}\r\n", LEVELS[level]);
        if ttl_s > 0 {
            headers += &format!("mq9-ttl: {ttl_s}\r\n");
        }
        if in_memory {
            headers += "mq9-persist: false\r\n";
        }
        let payload = format!("{}-{}", key.0, key.1);
        let reply = self.driver.ask(self.sender, "SEND.m", &headers, &payload);
        let reply: Value = serde_json::from_str(&reply).unwrap();
        let msg_id = reply["msg_id"].as_u64().unwrap();
        let expires_ms = if ttl_s > 0 { self.driver.now.wall_ms + ttl_s * 1000 } else { 0 };
        self.sent.insert(key, Sent { msg_id, expires_ms, in_memory });
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
        let text = format!("SUB $mq9.AI.{prefix}.m.{word} {queue}{sid}\r\n");
        self.driver.feed(self.conns[&conn].0, text.as_bytes());
        self.subscriptions.push(Subscription { sid, conn, kind, level });
    }

    fn unsubscribe(&mut self) {
        if self.subscriptions.is_empty() {
            return;
        }
        let at = self.dice.below(self.subscriptions.len());
        let Subscription { sid, conn, .. } = self.subscriptions[at];
        self.driver.feed(self.conns[&conn].0, format!("UNSUB {sid}\r\n").as_bytes());
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
        let seen = messages.iter().map(|message| key_of(message["payload"].as_str().unwrap()));
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
                    came.entry(sid).or_default().push(key_of(words[2]));
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
        for member in members {
            let own = came.remove(&member.sid).unwrap_or_default();
            assert!(own.is_sorted(), "{kind:?} out of order: {own:?}");
            for &key in &own {
                assert!(member.wants(key), "{member:?} was given {key:?}");
                given.insert(key, (member.conn, member.sid));
            }
            all.extend(own);
        }
        all.sort_unstable();
        assert_eq!(all, due, "{kind:?} of {} messages", self.sent.len());
        self.pushed += all.len();
        self.given.insert(kind, given);
    }
}

fn key_of(payload: &str) -> Key {
    let (level, nth) = payload.split_once('-').unwrap_or_else(|| panic!("{payload}"));
    (level.parse().unwrap(), nth.parse().unwrap())
}

#[test]
fn readers_are_given_what_a_naive_model_says() {
    let mut pushed = 0;
    for seed in 0..40 {
        let mut world = World::new(seed);
        for _ in 0..150 {
            world.step();
        }
        pushed += world.pushed;
    }
    assert!(pushed > 5000, "{pushed} messages were pushed, too few to show anything");
}
