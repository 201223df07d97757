//! Requests that wait for messages: whose turn it is, whose they are, and when one has something to be told.
//!
//! Owns their order and their counts. Whatever is asked of it costs as much as the requests that it is about.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use hashbrown::HashMap;

use crate::protocol::ReplySubject;
use crate::store::ConsumerKey;

/// A request that waits for messages.
#[derive(Debug)]
pub struct Pull {
    /// The connection that asked.
    pub cid: u64,
    /// Where it asked.
    pub subject: Box<[u8]>,
    /// Where it listens.
    pub inbox: Box<[u8]>,
    /// Messages that it may still be given.
    pub left: u64,
    /// Bytes that it may still be given.
    pub bytes_left: Option<u64>,
    /// It ends where the messages end.
    pub no_wait: bool,
    /// Messages that it was given.
    pub delivered: u64,
    /// When it ends, in us: who published just behind its end must not reach it.
    pub expires_us: Option<u64>,
    /// How often it is told that all is well; 0 is never.
    pub heartbeat_ms: u64,
    /// When it is told so next.
    pub next_heartbeat_ms: Option<u64>,
    /// When it is looked at.
    armed_ms: Option<u64>,
}

impl Pull {
    /// A request that is told nothing by itself yet.
    pub fn new(cid: u64, subject: &[u8], inbox: &[u8]) -> Pull {
        Pull {
            cid,
            subject: subject.into(),
            inbox: inbox.into(),
            left: 1,
            bytes_left: None,
            no_wait: false,
            delivered: 0,
            expires_us: None,
            heartbeat_ms: 0,
            next_heartbeat_ms: None,
            armed_ms: None,
        }
    }

    /// Whether it has ended, though nobody may have looked since.
    pub fn is_over(&self, now_us: u64) -> bool {
        self.expires_us.is_some_and(|at| at <= now_us)
    }

    /// When it is looked at; it is surely over then.
    fn due_ms(&self) -> Option<u64> {
        let expires_ms = self.expires_us.map(|at| at.div_ceil(1000));
        expires_ms.into_iter().chain(self.next_heartbeat_ms).min()
    }
}

/// The requests of one consumer.
#[derive(Debug, Default)]
struct Queue {
    pulls: HashMap<u64, Pull, foldhash::fast::RandomState>,
    /// Whose turn it is; those that have ended are passed over.
    turns: VecDeque<u64>,
    /// What all of them may still be given.
    asked: u128,
    /// Those whose connections take nothing now. They have no turn.
    aside: BTreeSet<u64>,
    /// Those that end where the messages end: they have begun, or may not wait at all.
    ending: BTreeSet<u64>,
}

/// Requests by user; nobody's are not counted.
type ByUser = HashMap<Arc<str>, usize, foldhash::fast::RandomState>;

/// All requests that wait.
#[derive(Debug, Default)]
pub struct Pulls {
    queues: HashMap<ConsumerKey, Queue, foldhash::fast::RandomState>,
    /// When each is looked at.
    due: BTreeSet<(u64, ConsumerKey, u64)>,
    /// The requests of a connection.
    by_conn: BTreeMap<u64, BTreeSet<(ConsumerKey, u64)>>,
    /// Those that were put aside, by connection.
    aside: BTreeMap<u64, BTreeSet<(ConsumerKey, u64)>>,
    /// Connections among these that nobody was told of.
    thirsty: Vec<u64>,
    by_user: ByUser,
    users: HashMap<u64, Arc<str>, foldhash::fast::RandomState>,
    count: usize,
    next_id: u64,
}

impl Pulls {
    /// How many wait.
    pub fn len(&self) -> usize {
        self.count
    }

    /// How many of a connection wait.
    pub fn of_conn(&self, cid: u64) -> usize {
        self.by_conn.get(&cid).map_or(0, BTreeSet::len)
    }

    /// Whose connection it is, if that is known.
    pub fn user(&self, cid: u64) -> Option<&str> {
        self.users.get(&cid).map(|user| &**user)
    }

    /// How many of a connection's user wait, and who that is.
    pub fn of_user(&self, cid: u64) -> Option<(&str, usize)> {
        let user = self.user(cid)?;
        Some((user, self.by_user.get(user).copied().unwrap_or(0)))
    }

    /// How many wait for messages of a consumer.
    pub fn waiting(&self, key: ConsumerKey) -> usize {
        self.queues.get(&key).map_or(0, |queue| queue.pulls.len())
    }

    /// How many messages of a consumer are asked for.
    pub fn asked(&self, key: ConsumerKey) -> u128 {
        self.queues.get(&key).map_or(0, |queue| queue.asked)
    }

    /// The connection is a user's from now on, or nobody's. What it waits for counts to that user.
    pub fn set_user(&mut self, cid: u64, user: Option<Arc<str>>) {
        let count = self.of_conn(cid);
        self.count_user(cid, |all| all.saturating_sub(count));
        match user {
            Some(user) => self.users.insert(cid, user),
            None => self.users.remove(&cid),
        };
        self.count_user(cid, |all| all + count);
    }

    fn count_user(&mut self, cid: u64, change: impl FnOnce(usize) -> usize) {
        let Some(user) = self.users.get(&cid) else { return };
        let count = self.by_user.entry(Arc::clone(user)).or_default();
        *count = change(*count);
        if *count == 0 {
            self.by_user.remove(user);
        }
    }

    /// A request waits from now on, behind the others.
    pub fn add(&mut self, key: ConsumerKey, pull: Pull) {
        let (id, cid) = (self.next_id, pull.cid);
        self.next_id += 1;
        let queue = self.queues.entry(key).or_default();
        queue.asked += u128::from(pull.left);
        queue.turns.push_back(id);
        if pull.no_wait && pull.expires_us.is_none() {
            queue.ending.insert(id);
        }
        queue.pulls.insert(id, pull);
        self.by_conn.entry(cid).or_default().insert((key, id));
        self.count += 1;
        self.count_user(cid, |all| all + 1);
        self.arm(key, id);
    }

    /// A request ends.
    pub fn remove(&mut self, key: ConsumerKey, id: u64) -> Option<Pull> {
        let queue = self.queues.get_mut(&key)?;
        let pull = queue.pulls.remove(&id)?;
        queue.asked -= u128::from(pull.left);
        queue.ending.remove(&id);
        if queue.aside.remove(&id)
            && let Some(theirs) = self.aside.get_mut(&pull.cid)
        {
            theirs.remove(&(key, id));
            if theirs.is_empty() {
                self.aside.remove(&pull.cid);
            }
        }
        if queue.pulls.is_empty() {
            self.queues.remove(&key);
        } else if queue.turns.len() > 2 * queue.pulls.len() + 16 {
            let Queue { pulls, turns, .. } = queue;
            turns.retain(|id| pulls.contains_key(id));
        }
        if let Some(armed_ms) = pull.armed_ms {
            self.due.remove(&(armed_ms, key, id));
        }
        if let Some(theirs) = self.by_conn.get_mut(&pull.cid) {
            theirs.remove(&(key, id));
            if theirs.is_empty() {
                self.by_conn.remove(&pull.cid);
            }
        }
        self.count -= 1;
        self.count_user(pull.cid, |all| all.saturating_sub(1));
        Some(pull)
    }

    /// Takes the request whose turn it is out of the order. [`Pulls::given`] puts it back, or
    /// [`Pulls::put_aside`] for later.
    pub fn take_turn(&mut self, key: ConsumerKey) -> Option<(u64, &Pull)> {
        let queue = self.queues.get_mut(&key)?;
        while let Some(id) = queue.turns.pop_front() {
            if queue.pulls.contains_key(&id) {
                return queue.pulls.get(&id).map(|pull| (id, pull));
            }
        }
        None
    }

    /// A request whose turn it was waits until its connection has room.
    pub fn put_aside(&mut self, key: ConsumerKey, id: u64) {
        let Some(queue) = self.queues.get_mut(&key) else { return };
        let Some(pull) = queue.pulls.get(&id) else { return };
        queue.aside.insert(id);
        let theirs = self.aside.entry(pull.cid).or_default();
        if theirs.is_empty() {
            self.thirsty.push(pull.cid);
        }
        theirs.insert((key, id));
    }

    /// A connection has room: it is the turn of its requests that were put aside. Says at which consumers.
    pub fn put_back(&mut self, cid: u64) -> BTreeSet<ConsumerKey> {
        let mut keys = BTreeSet::new();
        for (key, id) in self.aside.remove(&cid).into_iter().flatten().rev() {
            if let Some(queue) = self.queues.get_mut(&key) {
                queue.aside.remove(&id);
                queue.turns.push_front(id);
                keys.insert(key);
            }
        }
        keys
    }

    /// Connections that requests were put aside for, since this was asked.
    pub fn take_thirsty(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.thirsty)
    }

    /// A request whose turn it was is given a message of so many bytes; it ends if that was its last. Says where the
    /// message goes.
    pub fn given(
        &mut self,
        key: ConsumerKey,
        id: u64,
        bytes: u64,
        now_ms: u64,
    ) -> Option<(u64, ReplySubject)> {
        let queue = self.queues.get_mut(&key)?;
        let pull = queue.pulls.get_mut(&id)?;
        queue.asked -= 1;
        pull.left -= 1;
        pull.delivered += 1;
        pull.bytes_left = pull.bytes_left.map(|left| left.saturating_sub(bytes));
        if pull.heartbeat_ms > 0 {
            pull.next_heartbeat_ms = Some(now_ms.saturating_add(pull.heartbeat_ms));
        }
        let to = (pull.cid, ReplySubject::from_slice(&pull.inbox));
        if pull.left == 0 {
            self.remove(key, id);
        } else {
            if pull.no_wait {
                queue.ending.insert(id);
            }
            queue.turns.push_back(id);
        }
        Some(to)
    }

    /// Takes out the requests of a consumer that end where the messages end.
    pub fn take_ending(&mut self, key: ConsumerKey) -> Vec<Pull> {
        let ending = self.queues.get(&key).map(|queue| queue.ending.clone()).unwrap_or_default();
        ending.into_iter().filter_map(|id| self.remove(key, id)).collect()
    }

    /// Takes out all requests of a consumer, in their order.
    pub fn take_all(&mut self, key: ConsumerKey) -> Vec<Pull> {
        let Some(queue) = self.queues.get(&key) else { return Vec::new() };
        let all: Vec<u64> = queue.aside.iter().chain(&queue.turns).copied().collect();
        all.into_iter().filter_map(|id| self.remove(key, id)).collect()
    }

    /// The consumers that requests wait for.
    pub fn consumers(&self) -> Vec<ConsumerKey> {
        self.queues.keys().copied().collect()
    }

    /// Takes out those of the first `most` requests of a consumer that nobody listens for.
    pub fn prune(&mut self, key: ConsumerKey, most: usize, hears: impl Fn(&Pull) -> bool) {
        let Some(queue) = self.queues.get(&key) else { return };
        let first = queue.turns.iter().take(most);
        let dead = first.filter(|id| queue.pulls.get(*id).is_some_and(|pull| !hears(pull)));
        for id in dead.copied().collect::<Vec<u64>>() {
            self.remove(key, id);
        }
    }

    /// The requests of a connection.
    pub fn theirs(&self, cid: u64) -> Vec<(ConsumerKey, u64)> {
        self.by_conn.get(&cid).into_iter().flatten().copied().collect()
    }

    /// A request.
    pub fn get(&self, key: ConsumerKey, id: u64) -> Option<&Pull> {
        self.queues.get(&key)?.pulls.get(&id)
    }

    /// A request is told at `now_ms` that all is well.
    pub fn beat(&mut self, key: ConsumerKey, id: u64, now_ms: u64) {
        let queue = self.queues.get_mut(&key);
        if let Some(pull) = queue.and_then(|queue| queue.pulls.get_mut(&id)) {
            pull.next_heartbeat_ms = Some(now_ms.saturating_add(pull.heartbeat_ms));
        }
        self.arm(key, id);
    }

    /// Takes a request that is to be looked at. One that has nothing to be told yet is looked at again in its time.
    pub fn take_due(&mut self, now_ms: u64) -> Option<(ConsumerKey, u64)> {
        while let Some(&(due_ms, key, id)) = self.due.first()
            && due_ms <= now_ms
        {
            self.due.pop_first();
            let queue = self.queues.get_mut(&key);
            let Some(pull) = queue.and_then(|queue| queue.pulls.get_mut(&id)) else { continue };
            pull.armed_ms = None;
            if pull.due_ms().is_some_and(|due_ms| due_ms <= now_ms) {
                return Some((key, id));
            }
            self.arm(key, id);
        }
        None
    }

    /// When the next request is looked at.
    pub fn next_due_ms(&self) -> Option<u64> {
        self.due.first().map(|(due_ms, _, _)| *due_ms)
    }

    fn arm(&mut self, key: ConsumerKey, id: u64) {
        let queue = self.queues.get_mut(&key);
        let Some(pull) = queue.and_then(|queue| queue.pulls.get_mut(&id)) else { return };
        if pull.armed_ms.is_none()
            && let Some(due_ms) = pull.due_ms()
        {
            pull.armed_ms = Some(due_ms);
            self.due.insert((due_ms, key, id));
        }
    }

    /// Panics unless order, counts and times agree. For tests.
    pub fn check_invariants(&self) {
        let mut count = 0;
        let mut armed = 0;
        for (key, queue) in &self.queues {
            assert!(!queue.pulls.is_empty(), "a queue of nobody");
            let asked: u128 = queue.pulls.values().map(|pull| u128::from(pull.left)).sum();
            assert_eq!(queue.asked, asked, "messages that are asked for");
            for (id, pull) in &queue.pulls {
                let waits = queue.turns.contains(id) || queue.aside.contains(id);
                assert!(waits, "it would never be its turn");
                let theirs = self.by_conn.get(&pull.cid);
                assert!(theirs.is_some_and(|all| all.contains(&(*key, *id))), "whose it is");
                let due = pull.due_ms();
                assert!(due.is_none() || pull.armed_ms.is_some_and(|at| Some(at) <= due), "time");
                armed += usize::from(pull.armed_ms.is_some());
                count += 1;
            }
            assert!(queue.ending.iter().all(|id| queue.pulls.contains_key(id)), "what ends");
        }
        let aside = self.queues.values().map(|queue| queue.aside.len()).sum::<usize>();
        assert_eq!(self.aside.values().map(BTreeSet::len).sum::<usize>(), aside, "put aside");
        assert_eq!(self.count, count, "requests that wait");
        assert_eq!(self.due.len(), armed, "requests that are looked at");
        assert_eq!(self.by_conn.values().map(BTreeSet::len).sum::<usize>(), count, "by connection");
    }
}
