//! Subscriptions that are fed from mailboxes.
//!
//! A *feed* reads a mailbox from a position, for one subscription or for several that share what there is. It is given
//! turns while there is something to read and room to write it, so that nobody is ahead of a client by more than a
//! window, whatever the backlog. Live messages are no second path: they are the position reaching the end. Owns feeds
//! and what they wait for. Must not know how bytes travel.

mod conn;
mod feed;
mod members;
mod turn;

use std::collections::VecDeque;

use hashbrown::{HashMap, HashSet};

use super::broadcasts::Broadcasts;
use crate::commands::FETCH;
use crate::front::{Front, Outlet, Permissions, Said, Subscribing};
use crate::log::Lsn;
use crate::protocol::Dialect;
use crate::protocol::push::{Listening, listening};
use crate::store::{LevelSet, MailboxRef, Position, Store};
use crate::time::Now;
use conn::Conn;
use feed::{Feed, FeedId, Kind};
use members::{Member, State};
use turn::Shared;

type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// What all feeds may write in one round: then others have their turn.
const ROUND_BYTES: usize = 1 << 20;

/// How soon something that failed is tried again.
const RETRY_MS: u64 = 250;

/// A mailbox that is read.
#[derive(Debug)]
struct Mailbox {
    watched: MailboxRef,
    feeds: HashSet<FeedId, foldhash::fast::RandomState>,
    /// Feeds that go on when there is something new.
    idle: Vec<FeedId>,
    inbox: Option<FeedId>,
    queues: Map<Box<[u8]>, FeedId>,
}

/// What was done so far.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// Turns that feeds were given.
    pub turns: u64,
    /// Readings of a mailbox.
    pub reads: u64,
    /// Members that were looked at to find one who takes a message.
    pub members: u64,
}

/// All feeds.
#[derive(Debug, Default)]
pub struct Pushes {
    feeds: Map<FeedId, Feed>,
    /// The feed of each reader, by the number that its subscription knows.
    readers: Map<u64, FeedId>,
    /// By number.
    mailboxes: Map<u64, Mailbox>,
    conns: Map<u64, Conn>,
    /// Feeds that have something to do, in turn.
    active: VecDeque<FeedId>,
    /// Feeds that wait for the log, and how far it was acknowledged when they last looked.
    unready: Vec<FeedId>,
    acknowledged: Lsn,
    /// Feeds that could not read or record, connections whose answers could not be recorded, and when they are to try
    /// again, in ms of the monotonic clock.
    failed: Vec<FeedId>,
    unrecorded: Vec<u64>,
    retry_ms: Option<u64>,
    work: Work,
    /// Connections to be asked for a sign.
    to_ask: Vec<u64>,
    next: u64,
    /// What was read last in this round: those who stand at the same place need not read it again.
    shared: Option<Shared>,
}

impl Pushes {
    /// Whether nobody is fed.
    pub fn is_empty(&self) -> bool {
        self.feeds.is_empty()
    }

    /// How many subscriptions are fed.
    pub fn readers(&self) -> usize {
        self.readers.len()
    }

    /// What was done so far: how much that is must not depend on those who have nothing to be given.
    pub fn work(&self) -> Work {
        self.work
    }

    /// Whether there is something to do now, where the log is acknowledged this far.
    pub fn is_due(&self, acknowledged: Lsn, now: Now) -> bool {
        !self.active.is_empty()
            || (!self.unready.is_empty() && acknowledged > self.acknowledged)
            || self.retry_in_ms(now) == Some(0)
    }

    /// How long until what failed is to be tried again.
    pub fn retry_in_ms(&self, now: Now) -> Option<u64> {
        self.retry_ms.map(|due_ms| due_ms.saturating_sub(now.mono_ms))
    }

    fn retry_later(&mut self, now: Now) {
        self.retry_ms.get_or_insert(now.mono_ms.saturating_add(RETRY_MS));
    }

    /// Tries again what failed a while ago.
    fn retry_due(&mut self, store: &mut Store, now: Now) {
        if self.retry_in_ms(now) != Some(0) {
            return;
        }
        self.retry_ms = None;
        for cid in std::mem::take(&mut self.unrecorded) {
            self.record_answered(cid, store, now);
        }
        for id in std::mem::take(&mut self.failed) {
            if let Some(feed) = self.feeds.get_mut(&id) {
                feed.has_failed = false;
            }
            self.activate(id);
        }
    }

    /// Whether somebody waits for more of the log to be durable.
    pub fn is_waiting_for_log(&self) -> bool {
        !self.unready.is_empty()
    }

    /// Feeds a subscription from now on; the number of its reader.
    pub fn subscribe(
        &mut self,
        store: &mut Store,
        wish: &Subscribing<'_>,
        now: Now,
    ) -> Result<u64, Option<String>> {
        let asked = listening(wish.subject, |address| store.exists(address, now));
        let Some(Ok(Listening { address, dialect, levels: asked })) = asked else {
            return Err(None);
        };
        let levels = allowed(asked, dialect, address, wish.rules);
        if levels.is_empty() {
            return Err(None);
        }
        let watched = store.watch(address, now).map_err(|error| Some(error.to_string()))?;
        if dialect == Dialect::Inbox
            && let Err(error) = store.open_inbox(watched.slot, now)
        {
            self.unwatch_if_unread(store, watched);
            return Err(Some(error.to_string()));
        }
        let reader = self.number();
        let outlet = Outlet { cid: wish.cid, subscription: wish.subscription, reader };
        let member = Member::new(outlet, dialect, asked, levels);
        let feed = self.feed_for(watched, address, dialect, wish.queue);
        self.readers.insert(reader, feed);
        self.conns.entry(wish.cid).or_default().readers += 1;
        if let Some(feed) = self.feeds.get_mut(&feed) {
            feed.members.add(member);
        }
        self.activate(feed);
        Ok(reader)
    }

    /// The feed that such a subscription joins, or a new one.
    fn feed_for(
        &mut self,
        watched: MailboxRef,
        address: &str,
        dialect: Dialect,
        queue: &[u8],
    ) -> FeedId {
        let id = FeedId(self.number());
        let mailbox = self.mailboxes.entry(watched.number).or_insert_with(|| Mailbox {
            watched,
            feeds: HashSet::default(),
            idle: Vec::new(),
            inbox: None,
            queues: Map::default(),
        });
        let kind = match dialect {
            Dialect::Inbox => match mailbox.inbox {
                Some(feed) => return feed,
                None => {
                    mailbox.inbox = Some(id);
                    Kind::Inbox
                }
            },
            Dialect::Mailbox if queue.is_empty() => Kind::Own(Position::default()),
            Dialect::Mailbox => match mailbox.queues.get(queue) {
                Some(&feed) => return feed,
                None => {
                    mailbox.queues.insert(queue.into(), id);
                    let (position, left) = (Position::default(), VecDeque::new());
                    Kind::Queue { name: queue.into(), position, left }
                }
            },
        };
        mailbox.feeds.insert(id);
        self.feeds.insert(id, Feed::new(watched, address, kind));
        id
    }

    /// Whether a reader may go on under these rules, by which it reads from now on.
    pub fn may_feed(&mut self, reader: u64, rules: Option<&Permissions>) -> bool {
        let Some(&id) = self.readers.get(&reader) else { return false };
        let Some(feed) = self.feeds.get_mut(&id) else { return false };
        let address = feed.address.clone();
        let Some(member) = feed.members.get(reader) else { return false };
        let levels = allowed(member.asked, member.dialect, &address, rules);
        feed.members.set_levels(reader, levels);
        let may = !levels.is_empty();
        self.activate(id);
        may
    }

    /// A connection is gone: what was written to it and not answered is unread. Its subscriptions end by themselves.
    pub fn disconnect(&mut self, cid: u64) {
        self.conns.remove(&cid);
    }

    /// Takes in what readers have said.
    pub fn hear(
        &mut self,
        store: &mut Store,
        front: &mut Front,
        broadcasts: &mut Broadcasts,
        now: Now,
    ) {
        for said in front.take_said() {
            match said {
                Said::Ended { reader, surplus } => {
                    broadcasts.end(reader);
                    self.end(reader, surplus, store);
                }
                Said::Sign(cid) => self.confirm(cid, store, now),
            }
        }
    }

    /// Lets feeds go on as far as there is room, and a round allows; true if there is more to do.
    pub fn go_on(
        &mut self,
        store: &mut Store,
        front: &mut Front,
        broadcasts: &mut Broadcasts,
        now: Now,
    ) -> bool {
        self.hear(store, front, broadcasts, now);
        for cid in front.take_roomy() {
            broadcasts.wake(cid);
            self.wake_thirsty(cid);
        }
        let news = store.take_news();
        for gone in news.gone {
            self.lose(gone, front);
        }
        for woken in news.woken {
            let mailbox = self.mailboxes.get_mut(&woken.number);
            let idle = mailbox.map(|mailbox| std::mem::take(&mut mailbox.idle));
            for feed in idle.into_iter().flatten() {
                if let Some(feed) = self.feeds.get_mut(&feed) {
                    feed.is_idle = false;
                }
                self.activate(feed);
            }
        }
        self.retry_due(store, now);
        let acknowledged = store.acknowledged();
        if acknowledged > self.acknowledged {
            self.acknowledged = acknowledged;
            for feed in std::mem::take(&mut self.unready) {
                if let Some(feed) = self.feeds.get_mut(&feed) {
                    feed.is_unready = false;
                }
                self.activate(feed);
            }
        }
        let mut left = ROUND_BYTES;
        while left > 0
            && let Some(feed) = self.active.pop_front()
        {
            left = left.saturating_sub(self.turn(feed, store, front, now));
        }
        self.shared = None;
        self.ask_for_signs(front);
        !self.active.is_empty()
    }

    /// A subscription has ended, whose client passes over so many of the last messages that were written to it.
    fn end(&mut self, reader: u64, surplus: u64, store: &mut Store) {
        let Some(id) = self.readers.remove(&reader) else { return };
        let Some(feed) = self.feeds.get_mut(&id) else { return };
        let Some(member) = feed.members.remove(reader) else { return };
        if let Some(conn) = self.conns.get_mut(&member.outlet.cid) {
            conn.readers -= 1;
            if matches!(feed.kind, Kind::Inbox) {
                for msg_id in conn.take_back(reader, surplus) {
                    store.inbox_passed_over(feed.watched, msg_id);
                }
            }
        }
        if let Kind::Queue { left, .. } = &mut feed.kind {
            left.push_back(member.held.into_runs());
        }
        if feed.members.is_empty() {
            self.remove(id, store);
        } else {
            self.activate(id);
        }
    }

    /// Nobody is fed by it any more.
    fn remove(&mut self, id: FeedId, store: &mut Store) {
        let Some(feed) = self.feeds.remove(&id) else { return };
        let Some(mailbox) = self.mailboxes.get_mut(&feed.watched.number) else { return };
        mailbox.feeds.remove(&id);
        match &feed.kind {
            Kind::Inbox => mailbox.inbox = None,
            Kind::Queue { name, .. } => drop(mailbox.queues.remove(name)),
            Kind::Own(_) => {}
        }
        // Those who left while they waited for news are not to gather.
        if mailbox.idle.len() > 2 * mailbox.feeds.len() + 16 {
            let feeds = &self.feeds;
            mailbox.idle.retain(|id| feeds.contains_key(id));
        }
        self.unwatch_if_unread(store, feed.watched);
    }

    fn unwatch_if_unread(&mut self, store: &mut Store, watched: MailboxRef) {
        let mailbox = self.mailboxes.get(&watched.number);
        if mailbox.is_none_or(|mailbox| mailbox.feeds.is_empty()) {
            self.mailboxes.remove(&watched.number);
            store.unwatch(watched);
        }
    }

    /// A mailbox has gone: its subscriptions end, and are told so.
    fn lose(&mut self, gone: MailboxRef, front: &mut Front) {
        let Some(mailbox) = self.mailboxes.remove(&gone.number) else { return };
        for feed in mailbox.feeds.iter().filter_map(|id| self.feeds.remove(id)) {
            let status = format!("404 mailbox {} does not exist", feed.address);
            for member in feed.members.into_list() {
                self.readers.remove(&member.outlet.reader);
                if let Some(conn) = self.conns.get_mut(&member.outlet.cid) {
                    conn.readers -= 1;
                }
                let subject = member.dialect.base(&feed.address);
                front.end_with_status(&member.outlet, &subject, &status);
            }
        }
    }

    /// A feed may have something to do.
    fn activate(&mut self, id: FeedId) {
        if let Some(feed) = self.feeds.get_mut(&id)
            && !std::mem::replace(&mut feed.is_active, true)
        {
            self.active.push_back(id);
        }
    }

    /// A number that no reader has had.
    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Panics unless feeds, mailboxes, readers and connections agree. For tests.
    pub fn check_invariants(&self, store: &Store) {
        let members: usize = self.feeds.values().map(|feed| feed.members.len()).sum();
        assert_eq!(members, self.readers.len(), "members of feeds");
        let by_mailbox: usize = self.mailboxes.values().map(|mailbox| mailbox.feeds.len()).sum();
        assert_eq!(by_mailbox, self.feeds.len(), "feeds by mailbox");
        for (number, mailbox) in &self.mailboxes {
            assert!(!mailbox.feeds.is_empty(), "a mailbox that nobody reads");
            let watched = store.is_watched(mailbox.watched);
            assert_eq!(*number, mailbox.watched.number, "number of a mailbox");
            assert!(watched || store.has_news(), "mailbox {number} is not watched");
        }
        let waits = !self.failed.is_empty() || !self.unrecorded.is_empty();
        assert!(!waits || self.retry_ms.is_some(), "what failed is never tried again");
        for (id, feed) in &self.feeds {
            assert!(!feed.members.is_empty(), "a feed without members");
            assert_eq!(feed.is_active, self.active.contains(id), "activity of a feed");
            feed.members.check_invariants();
            let waits = feed.is_idle || feed.is_unready || feed.has_failed;
            let waits = waits || feed.members.iter().any(|member| member.state != State::Ready);
            assert!(feed.is_active || waits, "a feed that nothing wakes");
            let mailbox = &self.mailboxes[&feed.watched.number];
            assert!(!feed.is_idle || mailbox.idle.contains(id), "a feed that news pass over");
            assert!(
                !feed.is_unready || self.unready.contains(id),
                "a feed that the log passes over"
            );
            assert!(!feed.has_failed || self.failed.contains(id), "a feed that time passes over");
            for member in feed.members.iter() {
                assert_eq!(self.readers.get(&member.outlet.reader), Some(id), "feed of a reader");
                let conn = self.conns.get(&member.outlet.cid);
                let known = conn.is_some_and(|conn| conn.thirsty.contains(&member.outlet.reader));
                let is_thirsty = member.state == State::Thirsty;
                assert!(!is_thirsty || conn.is_none() || known, "thirst nobody knows of");
            }
        }
    }
}

/// The levels of which a client may be given messages.
fn allowed(
    asked: LevelSet,
    dialect: Dialect,
    address: &str,
    rules: Option<&Permissions>,
) -> LevelSet {
    let Some(rules) = rules else { return asked };
    // Whoever may not fetch may not be given the same in another way.
    if rules.denies_publish(&[FETCH, address.as_bytes()].concat()) {
        return LevelSet::default();
    }
    asked.filter(|level| rules.may_receive(&dialect.subject(address, level)))
}
