//! Feeds the member with what the stream says, and does what it decides.
//!
//! Owns the order of things on the node's thread. Decides nothing about terms or sequences: that is the member's.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mq9_cluster::{Action, Content, Found, Member, Position, Record, Role as MemberRole, Writer};
use mq9_core::error::Error;
use mq9_core::log::{Lsn, Outgoing, Syncer};
use mq9_core::store::FairLock;
use mq9_core::wire::tie::{StreamPosition, Tie};
use mq9_runtime::{Bell, clock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::link::Link;
use crate::node::Settings;
use crate::status::{Peer, Role, Shared, Status};
use crate::stream::{IDLE_MS, News, Stream};
use crate::wire::Said;

/// A server that says nothing for so long is given up.
const SILENT_MS: u64 = 2_000;
const PING_MS: u64 = 500;
/// Time between two attempts to connect, and between two questions whether the stream is there.
const AGAIN_MS: u64 = 200;
const TELL_MS: u64 = 500;
const PURGE_MS: u64 = 5_000;
/// Messages that stay in the stream although all nodes have them.
const PURGE_MARGIN: u64 = 1_000;
/// A node that was not heard of for so long may be away.
const PEER_MS: u64 = 3_000;
/// How long a leader that stops waits for its lead to be given away.
const YIELD_MS: u64 = 2_000;

/// What others want of the thread.
#[derive(Default)]
pub(crate) struct Wishes {
    pub(crate) stop: AtomicBool,
    /// The store has something for the stream.
    pub(crate) outgoing: AtomicBool,
}

/// A connection with what belongs to it.
struct Connection {
    link: Link,
    heard_at: u64,
    ping_at: u64,
    /// The stream is there.
    is_ready: bool,
    ask_at: u64,
    /// When the consumer was heard of last.
    tail_at: Option<u64>,
}

pub(crate) struct Driver {
    pub(crate) settings: Settings,
    pub(crate) store: Arc<FairLock>,
    pub(crate) syncer: Arc<Syncer>,
    pub(crate) member: Member,
    pub(crate) stream: Stream,
    pub(crate) shared: Arc<Shared>,
    pub(crate) wishes: Arc<Wishes>,
    pub(crate) bell: Arc<Bell>,
    state: State,
}

#[derive(Default)]
struct State {
    connection: Option<Connection>,
    server: usize,
    connect_at: u64,
    tail: u64,
    peers: BTreeMap<u32, (Peer, u64)>,
    tell_at: u64,
    purge_at: u64,
    purged: u64,
    /// A place in the stream, and the end of the own log that holds it.
    mark: Option<(u64, Lsn)>,
    durable: u64,
    last: u64,
    keep: u64,
    /// When a lead that is being given away is given up.
    yield_until: Option<u64>,
    end: Option<Role>,
    trouble: Option<String>,
}

impl Driver {
    pub(crate) fn new(
        settings: Settings,
        store: Arc<FairLock>,
        member: Member,
        stream: Stream,
        shared: Arc<Shared>,
        wishes: Arc<Wishes>,
        bell: Arc<Bell>,
    ) -> Driver {
        let syncer = store.lock().syncer();
        Driver {
            settings,
            store,
            syncer,
            member,
            stream,
            shared,
            wishes,
            bell,
            state: State::default(),
        }
    }

    /// Rounds until this node is to be opened again, or is told to stop.
    pub(crate) fn run(mut self) {
        while self.state.end.is_none() {
            let now = mono_ms();
            self.connect(now);
            self.wait(now);
            let now = mono_ms();
            if let Err(error) = self.listen(now) {
                self.disconnect(&error, now);
            }
            self.act(now);
            self.propose(now);
            self.member.tick(now);
            self.act(now);
            self.tail(now);
            self.tell(now);
            self.purge(now);
            self.end_if_told(now);
            self.write(now);
            self.publish_status();
        }
        // What was decided last is told: the others claim at once.
        let now = mono_ms();
        self.state.tell_at = 0;
        self.tell(now);
        self.write(now);
        self.publish_status();
    }

    fn connect(&mut self, now: u64) {
        if self.state.connection.is_some() || now < self.state.connect_at {
            return;
        }
        let servers = &self.settings.servers;
        let server = &servers[self.state.server % servers.len()];
        match Link::connect(server) {
            Ok(mut link) => {
                self.stream.subscribe(&mut link.out);
                let now = mono_ms();
                self.state.connection = Some(Connection {
                    link,
                    heard_at: now,
                    ping_at: now,
                    is_ready: false,
                    ask_at: now,
                    tail_at: None,
                });
                self.state.trouble = None;
            }
            Err(error) => {
                self.state.trouble = Some(format!("{}: {error}", server.address));
                self.state.server += 1;
                self.state.connect_at = mono_ms() + AGAIN_MS;
            }
        }
    }

    fn disconnect(&mut self, error: &io::Error, now: u64) {
        let servers = &self.settings.servers;
        let address = &servers[self.state.server % servers.len()].address;
        self.state.trouble = Some(format!("{address}: {error}"));
        self.state.connection = None;
        self.state.server += 1;
        self.state.connect_at = now;
    }

    /// Waits for the server, for the store, or for the time.
    fn wait(&mut self, now: u64) {
        let mut until = now + PING_MS;
        until = until.min(self.member.deadline().unwrap_or(u64::MAX));
        until = until.min(self.state.tell_at.max(now));
        if let Some(connection) = &self.state.connection {
            if !connection.is_ready {
                until = until.min(connection.ask_at);
            }
        } else {
            until = until.min(self.state.connect_at);
        }
        let most = Duration::from_millis(until.saturating_sub(now));
        let timeout =
            Timespec { tv_sec: most.as_secs() as i64, tv_nsec: i64::from(most.subsec_nanos()) };
        let mut watched = vec![PollFd::new(&*self.bell, PollFlags::IN)];
        if let Some(connection) = &self.state.connection {
            let mut wanted = PollFlags::IN;
            wanted.set(PollFlags::OUT, !connection.link.out.is_empty());
            watched.push(PollFd::new(&connection.link, wanted));
        }
        // A signal ends it early, and nothing is lost by that.
        let _ = poll(&mut watched, Some(&timeout));
        if watched[0].revents().contains(PollFlags::IN) {
            self.bell.reset();
        }
    }

    /// Takes what the server has said.
    fn listen(&mut self, now: u64) -> io::Result<()> {
        let Some(connection) = &mut self.state.connection else { return Ok(()) };
        // So much at once, that a tail does not keep the leader's clock from being looked at.
        for _ in 0..16 {
            if !connection.link.read()? {
                break;
            }
            connection.heard_at = now;
        }
        if now >= connection.heard_at + SILENT_MS {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if now >= connection.ping_at {
            connection.ping_at = now + PING_MS;
            connection.link.out.extend_from_slice(b"PING\r\n");
        }
        if !connection.is_ready && now >= connection.ask_at {
            connection.ask_at = now + 5 * AGAIN_MS;
            self.stream.ask_ready(&mut connection.link.out);
        }
        loop {
            let Some(connection) = &mut self.state.connection else { return Ok(()) };
            match connection.link.said()? {
                None => return Ok(()),
                Some(Said::Ping) => connection.link.out.extend_from_slice(b"PONG\r\n"),
                Some(Said::Pong | Said::Info(_)) => {}
                Some(Said::Refused(why)) => return Err(io::Error::other(why)),
                Some(Said::Message(message)) => {
                    let news = self.stream.hear(message, &mut connection.link.out);
                    self.hear(news, now);
                    // A batch is applied before the next is decoded: memory is bounded by what one read brings.
                    self.act(now);
                }
            }
            if self.state.end.is_some() {
                return Ok(());
            }
        }
    }

    fn hear(&mut self, news: News, now: u64) {
        let Some(connection) = &mut self.state.connection else { return };
        match news {
            News::Ready => {
                connection.is_ready = true;
                self.state.trouble = None;
            }
            // A node that holds something knows that there was a stream: a new one would be another.
            News::Missing if self.member.position().sequence == 0 => {
                self.stream.create(&mut connection.link.out);
            }
            News::Missing => {
                self.state.trouble =
                    Some("the stream is gone, but this node holds what was in it".to_owned());
            }
            News::NotReady(why) => self.state.trouble = Some(format!("the stream: {why}")),
            News::Answered(id, answer) => self.member.answered(&id, answer, now),
            News::Found(sequence, found) => self.member.looked_up(sequence, found, now),
            News::NotThere(sequence) => self.stream.ask_extent(&mut connection.link.out, sequence),
            News::Extent { about, first, last } => {
                self.state.last = self.state.last.max(last);
                match about {
                    0 => self.member.missed(first),
                    _ => self.member.looked_up(about, Found::Nothing { first, last }, now),
                }
            }
            News::Delivered { tail, sequence, payload } if tail == self.state.tail => {
                connection.tail_at = Some(now);
                self.member.delivered(sequence, &payload, now);
            }
            News::Alive(tail) if tail == self.state.tail => connection.tail_at = Some(now),
            News::NoTail(tail) if tail == self.state.tail => connection.tail_at = None,
            News::Peer(status) => {
                if let Ok(peer) = serde_json::from_slice::<Peer>(&status) {
                    self.state.last = self.state.last.max(peer.sequence);
                    self.state.peers.insert(peer.node, (peer, now));
                }
            }
            News::Delivered { .. } | News::Alive(_) | News::NoTail(_) | News::Nothing => {}
        }
    }

    /// Does what the member has decided.
    fn act(&mut self, now: u64) {
        while self.state.end.is_none()
            && let Some(action) = self.member.next_action()
        {
            let out = match &mut self.state.connection {
                Some(connection) if connection.is_ready => Some(connection),
                _ => None,
            };
            match action {
                // Without a connection they are lost, as on a network: the member asks again.
                Action::Append { id, expected, message } => {
                    if let Some(to) = out {
                        self.stream.append(&mut to.link.out, &id, expected, &message);
                    }
                }
                Action::LookUp { sequence } => {
                    if let Some(to) = out {
                        self.stream.look_up(&mut to.link.out, sequence);
                    }
                }
                Action::Tail { .. } => {
                    if let Some(to) = out {
                        to.tail_at = None;
                    }
                }
                Action::Apply { batch, position } => self.apply(batch.content, position),
                Action::Lead { position } => self.lead(position),
                Action::Committed { sequence } => {
                    // Replies look at the lease when they are told that there is more to say.
                    self.syncer.extend_lease(self.member.reads_until());
                    if let Some(mut store) = self.store.lock_if_open() {
                        store.committed(sequence);
                    }
                    self.wishes.outgoing.store(true, Ordering::SeqCst);
                }
                Action::Follow => self.demoted(u64::MAX),
                Action::StepDown { keep } => self.demoted(keep.sequence),
                Action::Stop(alarm) => self.stopped(alarm.to_string()),
            }
        }
        let _ = now;
    }

    fn apply(&mut self, content: Content, position: Position) {
        let records = match content {
            Content::Records(records) => records.into_iter().map(outgoing).collect(),
            Content::Claim | Content::Yield(_) => Vec::new(),
        };
        let Some(mut store) = self.store.lock_if_open() else { return };
        let tie = Tie { at: place(position), before: None };
        if let Err(error) = store.apply(&records, &tie, clock::now()) {
            drop(store);
            self.stopped(format!("message {} of the stream: {error}", position.sequence));
        }
    }

    fn lead(&mut self, position: Position) {
        let Some(mut store) = self.store.lock_if_open() else { return };
        let tie = Tie { at: place(position), before: None };
        let promoted = store.promote(&tie, clock::now());
        if promoted.is_ok() {
            let (wishes, bell) = (Arc::clone(&self.wishes), Arc::clone(&self.bell));
            store.on_outgoing(move || {
                wishes.outgoing.store(true, Ordering::SeqCst);
                bell.ring();
            });
        }
        drop(store);
        match promoted {
            Ok(()) => {
                self.wishes.outgoing.store(true, Ordering::SeqCst);
                self.syncer.begin_lease(self.member.reads_until());
                self.end_tail();
            }
            Err(error) => self.stopped(format!("this node cannot lead: {error}")),
        }
    }

    fn demoted(&mut self, keep: u64) {
        self.syncer.begin_lease(0);
        self.state.keep = keep;
        self.state.end = Some(Role::Demoted);
    }

    fn stopped(&mut self, why: String) {
        self.syncer.begin_lease(0);
        self.state.trouble = Some(why);
        self.state.end = Some(Role::Stopped);
    }

    /// Sends what the store has for the stream, if nothing is under way.
    fn propose(&mut self, now: u64) {
        if !self.member.has_room() || self.state.yield_until.is_some() && !self.member.has_room() {
            return;
        }
        if !self.wishes.outgoing.swap(false, Ordering::SeqCst) {
            return;
        }
        let Some(mut store) = self.store.lock_if_open() else { return };
        let proposed = store.take_outbox().and_then(|records| {
            if records.is_empty() {
                return Ok(());
            }
            let records = records.into_iter().map(record).collect();
            match self.member.propose(records, now) {
                Ok(proposed) => {
                    let tie =
                        Tie { at: place(proposed.position), before: Some(place(proposed.before)) };
                    store.tie(&tie, clock::now())
                }
                Err(error) => Err(Error::NotTied(error.to_string())),
            }
        });
        drop(store);
        match proposed {
            Ok(()) => self.act(now),
            // What could not be written down here is in the stream, or will be. Nobody is told that it is durable.
            Err(error) => self.state.trouble = Some(error.to_string()),
        }
    }

    /// Has the stream delivered, for as long as another leads.
    fn tail(&mut self, now: u64) {
        if self.member.role() != MemberRole::Following {
            return;
        }
        let from = self.member.position().sequence + 1;
        let Some(connection) = &mut self.state.connection else { return };
        let is_live = connection.tail_at.is_some_and(|at| now < at + 4 * IDLE_MS);
        if !connection.is_ready || is_live {
            return;
        }
        self.state.tail += 1;
        // Until it is made it counts as alive: it is given as long as one that falls silent.
        connection.tail_at = Some(now);
        self.stream.tail(&mut connection.link.out, self.state.tail, from);
        self.stream.ask_extent(&mut connection.link.out, 0);
    }

    fn end_tail(&mut self) {
        let tail = self.state.tail;
        self.state.tail += 1;
        if let Some(connection) = &mut self.state.connection {
            connection.tail_at = None;
            self.stream.end_tail(&mut connection.link.out, tail);
        }
    }

    fn role(&self) -> Role {
        self.state.end.unwrap_or(match self.member.role() {
            MemberRole::Starting => Role::Starting,
            MemberRole::Following => Role::Following,
            MemberRole::Leading => Role::Leading,
            MemberRole::Stopped => Role::Stopped,
        })
    }

    /// Says where this node is.
    fn tell(&mut self, now: u64) {
        if now < self.state.tell_at {
            return;
        }
        self.state.tell_at = now + TELL_MS;
        self.note_durable();
        let Position { sequence, digest, term, leader } = self.member.position();
        let peer = Peer {
            node: self.settings.node,
            role: self.role(),
            term,
            sequence,
            durable: self.state.durable,
            digest: digest.to_string(),
            leader: leader.map_or(0, |Writer { node, .. }| node),
        };
        if let (Some(connection), Ok(text)) =
            (&mut self.state.connection, serde_json::to_vec(&peer))
        {
            self.stream.tell(&mut connection.link.out, self.settings.node, &text);
        }
    }

    fn note_durable(&mut self) {
        if let Some((sequence, end)) = self.state.mark {
            if self.syncer.settled() < end {
                return;
            }
            self.state.durable = sequence;
        }
        if let Some(store) = self.store.lock_if_open() {
            self.state.mark = store.last_tie().map(|tie| (tie.at.sequence, store.end()));
        }
    }

    /// Removes from the stream what all nodes have for good.
    fn purge(&mut self, now: u64) {
        if now < self.state.purge_at || self.member.role() != MemberRole::Leading {
            return;
        }
        self.state.purge_at = now + PURGE_MS;
        let heard = |(peer, at): &&(Peer, u64)| {
            now < at + PEER_MS && matches!(peer.role, Role::Following | Role::Leading)
        };
        let heard: Vec<u64> =
            self.state.peers.values().filter(heard).map(|(peer, _)| peer.durable).collect();
        let all = heard.len() >= self.settings.nodes as usize;
        let durable = heard.into_iter().min().unwrap_or(0).min(self.state.durable);
        let before = durable.saturating_sub(PURGE_MARGIN);
        if all
            && before > self.state.purged + PURGE_MARGIN
            && let Some(connection) = &mut self.state.connection
        {
            self.state.purged = before;
            self.stream.purge(&mut connection.link.out, before);
        }
    }

    /// A leader that is to stop gives its lead away first.
    fn end_if_told(&mut self, now: u64) {
        if !self.wishes.stop.load(Ordering::SeqCst) || self.state.end.is_some() {
            return;
        }
        let until = *self.state.yield_until.get_or_insert(now + YIELD_MS);
        if self.member.role() != MemberRole::Leading || now >= until {
            self.state.end = Some(Role::Stopped);
            return;
        }
        let own = self.settings.node;
        let fit = self.state.peers.values().filter(|(peer, at)| {
            peer.node != own && peer.role == Role::Following && now < at + PEER_MS
        });
        let next = fit.max_by_key(|(peer, _)| peer.sequence).map(|(peer, _)| peer.node);
        let has_outgoing = self.store.lock_if_open().is_some_and(|mut store| store.has_outgoing());
        match next {
            Some(node) if self.member.has_room() && !has_outgoing => {
                let _ = self.member.yield_to(node, now);
                self.act(now);
            }
            // Whatever is under way comes first.
            Some(_) => {}
            None => self.state.end = Some(Role::Stopped),
        }
    }

    fn write(&mut self, now: u64) {
        if let Some(connection) = &mut self.state.connection
            && let Err(error) = connection.link.write()
        {
            self.disconnect(&error, now);
        }
    }

    fn publish_status(&mut self) {
        let Position { sequence, digest, term, leader } = self.member.position();
        self.shared.set(Status {
            role: self.role(),
            term,
            leader: leader.map_or(0, |Writer { node, .. }| node),
            sequence,
            durable: self.state.durable,
            digest: digest.to_string(),
            last: self.state.last.max(sequence),
            keep: self.state.keep,
            trouble: self.state.trouble.clone(),
            connected: self.state.connection.as_ref().is_some_and(|connection| connection.is_ready),
            changes: 0,
        });
    }
}

fn mono_ms() -> u64 {
    clock::now().mono_ms
}

fn outgoing(record: Record) -> Outgoing {
    let Record { kind, flags, mailbox, body } = record;
    Outgoing { kind, flags, mailbox, body }
}

fn record(outgoing: Outgoing) -> Record {
    let Outgoing { kind, flags, mailbox, body } = outgoing;
    Record { kind, flags, mailbox, body }
}

/// A place as the store writes it down.
fn place(position: Position) -> StreamPosition {
    let Position { sequence, digest, term, leader } = position;
    let leader = leader.map(|Writer { node, incarnation }| (node, incarnation));
    StreamPosition { sequence, digest: digest.0, term, leader }
}
