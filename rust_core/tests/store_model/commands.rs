//! The commands of a script: each is drawn from one number, out of few names, so that they collide.

use mq9_core::mailbox::{Discard, Level, MessageTtls, Policy, Tier};
use mq9_core::store::{AckKind, Fetch, GroupFetch, MemberId, Start};

pub const ADDRESSES: [&str; 4] = ["a", "b", "c.d", "dead"];
/// Users who create mailboxes and fetch.
pub const OWNERS: [&str; 2] = ["ada", "bob"];
/// Connections open at a time.
pub const CONNS: usize = 3;
const GROUPS: [&str; 4] = ["g", "h", "i", "j"];
const KEYS: [&str; 3] = ["k", "l", "key.with.a.longer.name"];
const TAGS: [&str; 4] = ["red", "green", "red,blue", "green,blue,white"];
const HEADERS: [&str; 2] = ["Trace: 7\r\n", "A: b\r\nC: d\r\n"];

/// How the ids of an acknowledgement or deletion are found when it is carried out.
#[derive(Debug, Clone, Copy)]
pub enum Aim {
    /// One of the group's deliveries, counted from the newest.
    Pending(usize),
    /// One of the mailbox's ids or one just past them, counted from the newest.
    Any(u64),
}

#[derive(Debug, Clone)]
pub struct NewMessage {
    pub level: Level,
    pub key: &'static str,
    pub tags: &'static str,
    pub headers: &'static str,
    /// First bytes and length of the payload.
    pub payload: (u64, usize),
    pub delay_ms: u64,
    pub ttl_ms: u64,
    /// Empty is none.
    pub id: &'static str,
}

impl NewMessage {
    pub fn payload(&self) -> Vec<u8> {
        let (first, len) = self.payload;
        (0..len).map(|at| (first >> (at % 8 * 8)) as u8 ^ at as u8).collect()
    }
}

#[derive(Debug, Clone)]
pub struct Search {
    pub key: Option<&'static str>,
    pub tags: Vec<&'static str>,
    /// Counted back from now.
    pub since_ms: Option<u64>,
    pub after: Option<u64>,
    pub before: Option<u64>,
    pub limit: usize,
    pub max_bytes: u64,
    pub newest: bool,
}

#[derive(Debug, Clone)]
pub enum Command {
    Create {
        address: &'static str,
        ttl_ms: u64,
        policy: Box<Policy>,
    },
    /// Of the policy, the fields of these numbers change.
    Update {
        address: &'static str,
        ttl_ms: Option<u64>,
        policy: Box<Policy>,
        fields: u64,
    },
    Remove {
        address: &'static str,
    },
    RemoveGroup {
        address: &'static str,
        group: &'static str,
    },
    Send {
        address: &'static str,
        message: NewMessage,
    },
    /// `Start::Since` and `Start::Id` count back from now and from the newest message; `conn` is one
    /// of the open connections.
    Fetch(Box<Fetch>),
    Ack {
        address: &'static str,
        group: &'static str,
        aims: Vec<Aim>,
        kind: AckKind,
    },
    Query {
        address: &'static str,
        search: Search,
    },
    Delete {
        address: &'static str,
        aim: u64,
    },
    Cancel {
        address: &'static str,
        nth: usize,
    },
    Delayed {
        address: &'static str,
        skip: usize,
        limit: usize,
    },
    Purge {
        address: &'static str,
    },
    Disconnect {
        conn: usize,
    },
    CancelWait {
        nth: usize,
    },
    Pass {
        ms: u64,
    },
    /// The wall clock alone jumps.
    Jump {
        ms: i64,
    },
    Rotate,
    Checkpoint,
    /// A step of a checkpoint or a compaction that other commands come between.
    Upkeep {
        compact: bool,
        budget: usize,
    },
    Maintain,
    Kill,
    Close,
}

/// A small random generator (splitmix64) over the number a command is drawn from.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }

    /// A value of `some` one time in `n`, else the default.
    fn maybe<T: Default>(&mut self, n: u64, some: impl FnOnce(&mut Draw) -> T) -> T {
        if self.one_in(n) { some(self) } else { T::default() }
    }

    fn address(&mut self) -> &'static str {
        self.of(&["a", "a", "a", "b", "b", "c.d", "dead"])
    }

    fn group(&mut self) -> &'static str {
        let last = if self.one_in(20) { 4 } else { 2 };
        GROUPS[self.below(last) as usize]
    }

    fn policy(&mut self, address: &str) -> Policy {
        let others: Vec<&str> = ADDRESSES.into_iter().filter(|a| *a != address).collect();
        let max_deliver = self.maybe(3, |draw| 1 + draw.below(3) as u32);
        let named = (max_deliver > 0 && !self.one_in(20)) || self.one_in(8);
        let target = if self.one_in(20) { address } else { self.of(&others) };
        Policy {
            latest: self.one_in(12),
            work_queue: self.one_in(4),
            public: self.one_in(6),
            tier: self.maybe(7, |_| Tier::Memory),
            discard: self.maybe(3, |_| Discard::New),
            max_msgs: self.maybe(5, |draw| 1 + draw.below(6)),
            max_bytes: self.maybe(8, |draw| 200 + draw.below(1500)),
            max_msg_size: self.maybe(12, |draw| 80 + draw.below(200)),
            max_age_ms: self.maybe(10, |draw| 500 + draw.below(20_000)),
            message_ttls: self.maybe(6, |draw| {
                let mut ttls = MessageTtls::default();
                ttls.set(Level::NORMAL, 500 + draw.below(20_000));
                ttls.set(Level::URGENT, draw.below(5_000));
                ttls
            }),
            ack_wait_ms: self.maybe(3, |draw| 300 + draw.below(5000)),
            max_deliver,
            max_ack_pending: self.maybe(5, |draw| 1 + draw.below(4) as u32),
            // Longer than any lease: which of both ends first is nobody's promise.
            group_ttl_ms: self.maybe(3, |draw| {
                if draw.one_in(4) { Policy::NEVER } else { 6_000 + draw.below(9_000) }
            }),
            dedup_window_ms: self.maybe(3, |draw| 500 + draw.below(5000)),
            dead_letter: named.then(|| target.into()),
            owner: self.one_in(2).then(|| self.of(&OWNERS).into()),
            ..Policy::default()
        }
    }

    fn level(&mut self) -> Level {
        let number = self.of(&[1, 3, 5, 5, 5, 6, 9, 10]);
        Level::new(number).unwrap()
    }

    fn message(&mut self) -> NewMessage {
        let len = self.of(&[0, 5, 20, 20, 60, 60, 200, 700]);
        NewMessage {
            level: self.level(),
            key: self.maybe(4, |draw| draw.of(&KEYS)),
            tags: self.maybe(3, |draw| draw.of(&TAGS)),
            headers: self.maybe(4, |draw| draw.of(&HEADERS)),
            payload: (self.next(), len),
            delay_ms: self.maybe(7, |draw| 100 * (1 + draw.below(30))),
            ttl_ms: self.maybe(7, |draw| 100 * (1 + draw.below(50))),
            id: self.maybe(4, |draw| draw.of(&["x", "y", "z"])),
        }
    }

    fn fetch(&mut self) -> Fetch {
        let conn = self.below(CONNS as u64);
        let group = (!self.one_in(6)).then(|| GroupFetch {
            name: self.group().to_owned(),
            member: match self.below(5) {
                0 => MemberId::Named("m".to_owned()),
                1 => MemberId::Named("n".to_owned()),
                _ => MemberId::Conn,
            },
            force: self.one_in(15),
        });
        let start = match self.below(8) {
            0 => Start::Latest,
            1 => Start::Since(self.below(8000)),
            2 => Start::Id(self.below(8)),
            _ => Start::Earliest,
        };
        Fetch {
            address: self.address().to_owned(),
            group,
            start,
            max_msgs: self.of(&[1, 1, 2, 3, 5, 100, 0]),
            max_bytes: if self.one_in(5) { self.below(600) } else { u64::MAX },
            max_level: if self.one_in(5) { self.level() } else { Level::LOWEST },
            ack_wait_ms: self.maybe(3, |draw| 100 * (1 + draw.below(40))),
            held: !self.one_in(4),
            wait_ms: self.maybe(2, |draw| 100 * (1 + draw.below(60))),
            conn,
            user: self.one_in(2).then(|| self.of(&OWNERS).into()),
        }
    }

    fn ack(&mut self) -> Command {
        let kind = match self.below(12) {
            0 => AckKind::Return { delay_ms: 0 },
            1 => AckKind::Return { delay_ms: 100 * (1 + self.below(30)) },
            2 => AckKind::Progress,
            3 => AckKind::Terminate,
            4..=6 => AckKind::Done { only: true },
            _ => AckKind::Done { only: false },
        };
        let count = if self.one_in(4) { self.below(4) } else { 1 };
        let aims = (0..count).map(|_| match self.below(8) {
            0 => Aim::Any(self.below(12)),
            _ => Aim::Pending(self.below(6) as usize),
        });
        let aims = aims.collect();
        Command::Ack { address: self.address(), group: self.group(), aims, kind }
    }

    fn search(&mut self) -> Search {
        Search {
            key: self.one_in(4).then(|| self.of(&["k", "l", "none", ""])),
            tags: self.maybe(3, |draw| vec![draw.of(&["red", "blue"]), "white"]),
            since_ms: self.one_in(3).then(|| self.below(8000)),
            after: self.one_in(3).then(|| self.below(8)),
            before: self.one_in(3).then(|| self.below(8)),
            limit: self.of(&[0, 1, 2, 3, 10, 1000]),
            max_bytes: if self.one_in(5) { self.below(600) } else { u64::MAX },
            newest: self.one_in(2),
        }
    }

    fn update(&mut self) -> Command {
        let address = self.address();
        let ttl_ms = self.one_in(4).then(|| self.maybe(2, |draw| 1 + draw.below(40_000)));
        let policy = Box::new(self.policy(address));
        Command::Update { address, ttl_ms, policy, fields: self.next() & self.next() }
    }

    fn create(&mut self, address: &'static str) -> Command {
        let policy = if self.one_in(4) { Policy::default() } else { self.policy(address) };
        let ttl_ms = self.maybe(6, |draw| 1000 + draw.below(20_000));
        Command::Create { address, ttl_ms, policy: Box::new(policy) }
    }
}

impl Command {
    /// The command number `nth` of a script. The first ones make mailboxes for the others to use.
    pub fn draw(seed: u64, nth: usize) -> Command {
        let mut draw = Draw(seed);
        if nth < 3 {
            return draw.create(ADDRESSES[nth]);
        }
        match draw.below(1000) {
            0..70 => {
                let address = draw.of(&ADDRESSES);
                draw.create(address)
            }
            70..80 => Command::Remove { address: draw.of(&ADDRESSES) },
            80..360 => Command::Send { address: draw.address(), message: draw.message() },
            360..570 => Command::Fetch(Box::new(draw.fetch())),
            570..700 => draw.ack(),
            700..745 => Command::Query { address: draw.address(), search: draw.search() },
            745..752 => Command::Cancel { address: draw.address(), nth: draw.below(5) as usize },
            752..756 => {
                let (skip, limit) = (draw.below(4) as usize, draw.of(&[1, 2, 100]));
                Command::Delayed { address: draw.address(), skip, limit }
            }
            756..764 => Command::Delete { address: draw.address(), aim: draw.below(10) },
            764..767 => Command::Purge { address: draw.address() },
            767..770 => draw.update(),
            770..785 => Command::Disconnect { conn: draw.below(CONNS as u64) as usize },
            785..790 => Command::CancelWait { nth: draw.below(4) as usize },
            790..805 => Command::RemoveGroup { address: draw.address(), group: draw.group() },
            805..860 => Command::Pass { ms: 1 + draw.below(60) },
            860..890 => Command::Pass { ms: 100 + draw.below(2000) },
            890..896 => Command::Pass { ms: draw.below(30_000) },
            896..900 => Command::Jump { ms: 5000 - draw.below(4000) as i64 },
            900..905 => Command::Jump { ms: -1000 - draw.below(5000) as i64 },
            905..910 => Command::Rotate,
            910..913 => Command::Checkpoint,
            913..955 => Command::Upkeep { compact: draw.one_in(2), budget: draw.of(&[1, 1, 2]) },
            955..980 => Command::Maintain,
            980..993 => Command::Kill,
            _ => Command::Close,
        }
    }
}

/// Changes the fields of these numbers. When groups go, ids are forgotten and messages are dead is tested elsewhere: that
/// happens at times which nobody promises.
pub fn change(changed: &mut Policy, to: &Policy, fields: u64) {
    let has = |field: u32| fields & (1 << field) != 0;
    let old = changed.clone();
    *changed = Policy {
        latest: if has(0) { to.latest } else { old.latest },
        work_queue: if has(1) { to.work_queue } else { old.work_queue },
        public: if has(2) { to.public } else { old.public },
        discard: if has(3) { to.discard } else { old.discard },
        max_msgs: if has(4) { to.max_msgs } else { old.max_msgs },
        max_bytes: if has(5) { to.max_bytes } else { old.max_bytes },
        max_msg_size: if has(6) { to.max_msg_size } else { old.max_msg_size },
        max_age_ms: if has(7) { to.max_age_ms } else { old.max_age_ms },
        message_ttls: if has(7) { to.message_ttls.clone() } else { old.message_ttls.clone() },
        ack_wait_ms: if has(8) { to.ack_wait_ms } else { old.ack_wait_ms },
        max_ack_pending: if has(9) { to.max_ack_pending } else { old.max_ack_pending },
        ..old
    };
}
