//! Feeds the member with what the stream says, and does what it decides.
//!
//! Owns the order of things on the node's thread. Decides nothing about terms or sequences: that is the member's.

mod others;
mod store;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use mq9_cluster::{Action, Found, Member, Position, Record, Role as MemberRole, Writer};
use mq9_core::error::Error;
use mq9_core::log::{Lsn, Outgoing, Syncer};
use mq9_core::store::FairLock;
use mq9_core::wire::tie::{StreamPosition, Tie};
use mq9_runtime::{Bell, clock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::link::Link;
use crate::node::Settings;
use crate::peers::Peers;
use crate::status::{Peer, Role, Shared, Status};
use crate::stream::{IDLE_MS, News, Stream};
use crate::wire::Said;
use store::Unwritten;

/// A server that says nothing for so long is given up.
const SILENT_MS: u64 = 2_000;
const PING_MS: u64 = 500;
/// Time between two attempts to connect, and between two questions whether the stream is there.
const AGAIN_MS: u64 = 200;
/// What others want of the thread.
#[derive(Default)]
pub(crate) struct Wishes {
    pub(crate) stop: AtomicBool,
    /// The store has something for the stream.
    pub(crate) outgoing: AtomicBool,
    /// The lead is to go to this node: 0 for none, [`ANYBODY`] for whoever is best placed.
    pub(crate) yield_to: AtomicU32,
}

/// No node in particular.
pub(crate) const ANYBODY: u32 = u32::MAX;

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
    peers: Peers,
    tell_at: u64,
    purge_at: u64,
    purged: u64,
    /// A place in the stream, and the end of the own log that holds it.
    mark: Option<(u64, Lsn)>,
    durable: u64,
    last: u64,
    keep: u64,
    /// What the full disk has not taken yet: nothing else is done before.
    unwritten: Option<Unwritten>,
    /// Servers in a row that cannot keep the stream; none counts once one could.
    unfit: Option<usize>,
    /// Another process that was heard of and has this node's number: it may be one that has ended.
    rival: u64,
    /// When a lead that is being given away is given up.
    yield_until: Option<u64>,
    /// When this thread began.
    began_at: u64,
    end: Option<Role>,
    trouble: Option<String>,
    /// Of a leader: why its own log takes nothing, and since when.
    unwell: Option<(String, u64)>,
    is_alarm: bool,
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
        let state = State { unfit: Some(0), began_at: mono_ms(), ..State::default() };
        Driver { settings, store, syncer, member, stream, shared, wishes, bell, state }
    }

    /// Rounds until this node is to be opened again, or is told to stop.
    pub(crate) fn run(mut self) {
        while self.state.end.is_none() {
            let now = mono_ms();
            self.write_again(now);
            self.connect(now);
            self.wait(now);
            let now = mono_ms();
            if let Err(error) = self.listen(now) {
                self.disconnect(&error, now);
            }
            self.act(now);
            self.propose(now);
            if self.state.unwritten.is_none() {
                self.member.tick(now);
            }
            self.act(now);
            self.give_up(now);
            self.tail(now);
            self.tell(now);
            self.purge(now);
            self.yield_if_unwell(now);
            self.yield_if_told(now);
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
        let is_busy = self.state.connection.is_some() || self.state.unwritten.is_some();
        if is_busy || now < self.state.connect_at {
            return;
        }
        let servers = &self.settings.servers;
        let server = &servers[self.state.server % servers.len()];
        match Link::connect(server, self.settings.needed_payload()) {
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
                self.state.unfit = None;
            }
            Err(error) => {
                let (why, is_unfit) = (
                    format!("{}: {error}", server.address),
                    error.kind() == io::ErrorKind::InvalidData,
                );
                self.state.server += 1;
                self.state.connect_at = mono_ms() + AGAIN_MS;
                if let Some(unfit) = &mut self.state.unfit {
                    *unfit = if is_unfit { *unfit + 1 } else { 0 };
                    if *unfit >= servers.len() {
                        return self.stopped(why);
                    }
                }
                self.state.trouble = Some(why);
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
        match (&self.state.connection, &self.state.unwritten) {
            (Some(connection), _) if !connection.is_ready => until = until.min(connection.ask_at),
            (None, None) => until = until.min(self.state.connect_at),
            _ => {}
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
            if self.state.end.is_some() || self.state.unwritten.is_some() {
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
            News::Unfit(why) => {
                self.state.is_alarm = true;
                self.stopped(why);
            }
            News::Missing => {
                let (peers, own) = (&self.state.peers, &self.settings);
                let sequence = self.member.position().sequence;
                self.state.trouble =
                    peers.keep_from_beginning(&own.members, own.node, sequence, now);
                if self.state.trouble.is_none() {
                    self.stream.create(&mut connection.link.out);
                }
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
                    self.heard_of(peer, now);
                }
            }
            News::Delivered { .. } | News::Alive(_) | News::NoTail(_) | News::Nothing => {}
        }
    }

    /// Does what the member has decided.
    fn act(&mut self, now: u64) {
        while self.state.end.is_none()
            && self.state.unwritten.is_none()
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
                Action::Apply { batch, position } => self.apply(batch.content, position, now),
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
                Action::Stop(alarm) => {
                    self.state.is_alarm = true;
                    self.stopped(alarm.to_string());
                }
            }
        }
    }

    /// Sends what the store has for the stream, if nothing is under way.
    fn propose(&mut self, now: u64) {
        // Who gives the lead away begins nothing new.
        let gives_away = self.wishes.yield_to.load(Ordering::SeqCst) != 0
            || self.wishes.stop.load(Ordering::SeqCst);
        if !self.member.has_room() || gives_away {
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
            leader: self.leader(leader),
            sequence,
            durable: self.state.durable,
            digest: digest.to_string(),
            last: self.state.last.max(sequence),
            keep: self.state.keep,
            trouble: self.state.trouble.clone(),
            is_alarm: self.state.is_alarm,
            answers: self.answers(mono_ms()),
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
