//! Clients of an engine with a store on a simulated disk, and a clock to turn.

use std::sync::Arc;
use std::time::Duration;

use mq9_core::disk::Disk;
use mq9_core::engine::Engine;
use mq9_core::error::Result;
use mq9_core::front::{ConnId, Event, Limits, PermissionsBuilder, Terms};
use mq9_core::mailbox::Policy;
use mq9_core::partition::Unread;
use mq9_core::protocol::WireOptions;
use mq9_core::store::{FairLock, NewMailbox, Options, Store, StoreGuard};
use mq9_core::time::{Moment, Now};
use mq9_sim::SimDisk;
use serde_json::Value;

pub const START: Now = Now { wall_ms: 1_700_000_000_000, mono_ms: 5_000 };

pub struct Driver {
    pub engine: Engine,
    pub now: Now,
    store: Arc<FairLock>,
    connections: u64,
    requests: u64,
    /// Settles as a caller that can wait for the disk: how often it synced what one reply waited for.
    pub alone: Option<usize>,
}

impl Driver {
    /// With mailbox `m`.
    pub fn new() -> Self {
        let mut driver = Self::on(Arc::new(SimDisk::new())).unwrap();
        driver.create("m", Policy::default());
        driver
    }

    pub fn on(disk: Arc<dyn Disk>) -> Result<Self> {
        Self::with(disk, Options::default(), START)
    }

    pub fn with(disk: Arc<dyn Disk>, options: Options, now: Now) -> Result<Self> {
        Self::serving(disk, options, WireOptions::default(), now)
    }

    /// With JetStream's API.
    pub fn with_streams() -> Self {
        Self::streams_on(Arc::new(SimDisk::new()), Options::default())
    }

    /// The same, with a store of these options.
    pub fn streams_on(disk: Arc<dyn Disk>, options: Options) -> Self {
        let wire = WireOptions { jetstream: true, ..WireOptions::default() };
        Self::serving(disk, options, wire, START).unwrap()
    }

    pub fn serving(
        disk: Arc<dyn Disk>,
        options: Options,
        served: WireOptions,
        now: Now,
    ) -> Result<Self> {
        let store = Arc::new(FairLock::new(Store::open(disk, options, 42, now)?));
        let (limits, options) = (Limits::default(), served);
        let engine = Engine::new(limits, options, Some(Arc::clone(&store)), 1, moment(now));
        Ok(Self { engine, now, store, connections: 0, requests: 0, alone: None })
    }

    /// The store, as control commands and upkeep use it.
    pub fn store(&self) -> StoreGuard<'_> {
        self.store.lock()
    }

    pub fn moment(&self) -> Moment {
        moment(self.now)
    }

    pub fn create(&mut self, address: &str, policy: Policy) {
        let new = NewMailbox { address, policy, ..Default::default() };
        self.store().create_mailbox(&new, self.now).unwrap();
    }

    /// A client that listens to its inbox.
    pub fn client(&mut self) -> ConnId {
        self.connections += 1;
        let id = self.engine.open(self.connections, false, self.moment());
        self.feed(id, format!("CONNECT {{}}\r\nSUB in{id}.> 1\r\n").as_bytes());
        id
    }

    /// Input without a look at what it brought about.
    pub fn feed_only(&mut self, id: ConnId, bytes: &[u8]) {
        self.engine.feed(id, bytes, self.moment());
    }

    pub fn feed(&mut self, id: ConnId, bytes: &[u8]) {
        self.feed_only(id, bytes);
        while let Some(event) = self.engine.next_event(self.moment()) {
            if let Event::Connect { conn, .. } = event {
                let terms = Terms {
                    verbose: false,
                    pedantic: false,
                    headers: true,
                    no_responders: true,
                    ..Terms::default()
                };
                self.engine.accept(conn, terms, self.moment());
            }
        }
    }

    /// What has come for a client, as it is on the wire.
    pub fn wire(&mut self, id: ConnId) -> String {
        let text = String::from_utf8_lossy(self.engine.front().unwritten(id)).into_owned();
        self.engine.front_mut().written(id, usize::MAX);
        text
    }

    /// Gives a client other permissions.
    pub fn permit(&mut self, id: ConnId, rules: PermissionsBuilder) {
        let rules = Some(Arc::new(rules.build().unwrap()));
        self.engine.set_permissions(id, rules, self.moment());
    }

    /// A client has gone.
    pub fn leave(&mut self, id: ConnId) {
        self.engine.remove(id, self.moment());
    }

    /// Sends a request whose answer goes to the client's inbox.
    pub fn request(&mut self, id: ConnId, command: &str, headers: &str, payload: &[u8]) {
        self.requests += 1;
        let reply = format!("in{id}.{}", self.requests);
        let mut text = if headers.is_empty() {
            format!("PUB $mq9.AI.MSG.{command} {reply} {}\r\n", payload.len())
        } else {
            let block = format!("NATS/1.0\r\n{headers}\r\n");
            let total = block.len() + payload.len();
            format!("HPUB $mq9.AI.MSG.{command} {reply} {} {total}\r\n{block}", block.len())
        }
        .into_bytes();
        text.extend_from_slice(payload);
        text.extend_from_slice(b"\r\n");
        self.feed(id, &text);
    }

    /// Ends what waits and lets the replies go that are true. Nothing becomes durable by it.
    pub fn release(&mut self) {
        if let Some(times) = self.alone {
            let durable = self.store().acknowledged();
            self.engine.settle_or_sync(self.moment(), &|| Duration::ZERO);
            let synced = self.store().acknowledged() > durable;
            self.alone = Some(times + usize::from(synced));
        } else {
            self.engine.settle(self.moment());
        }
        self.engine.check_invariants();
    }

    /// The same, with everything durable.
    pub fn settle(&mut self) {
        self.release();
        self.store().sync().unwrap();
        self.release();
    }

    /// What has come for a client, without the lines in front of it.
    pub fn heard(&mut self, id: ConnId) -> Vec<String> {
        self.heard_at(id).into_iter().map(|(_, message)| message).collect()
    }

    /// The same, each with its subject.
    pub fn heard_at(&mut self, id: ConnId) -> Vec<(String, String)> {
        let text = self.wire(id);
        let mut rest = text.as_str();
        let mut messages = Vec::new();
        while let Some((line, more)) = rest.split_once("\r\n") {
            let size: usize = line.rsplit(' ').next().unwrap().parse().unwrap();
            let message = &more[..size];
            // The kind of a refusal is tested by itself.
            let refusal = message.strip_prefix("NATS/1.0\r\nmq9-error: ");
            let text = refusal.and_then(|rest| rest.split_once("\r\n\r\n"));
            let text = text.map_or(message, |(_, text)| text);
            let subject = line.split(' ').nth(1).unwrap();
            messages.push((subject.to_owned(), text.to_owned()));
            rest = &more[size + 2..];
        }
        messages
    }

    /// The number in the reply subject of the next request.
    pub fn next_request(&self) -> u64 {
        self.requests + 1
    }

    /// The answer to a request, once everything is durable.
    pub fn ask(&mut self, id: ConnId, command: &str, headers: &str, payload: &str) -> String {
        self.request(id, command, headers, payload.as_bytes());
        self.settle();
        self.heard(id).join("|")
    }

    /// What the owner of a mailbox is given of its inbox, once it is durable.
    pub fn unread(&mut self, id: ConnId, address: &str) -> Option<Value> {
        self.ask_unread(id, address, &format!("in{id}.unread"));
        self.settle();
        let heard = self.heard(id);
        assert!(heard.len() <= 1, "{heard:?}");
        heard.first().map(|reply| serde_json::from_str(reply).unwrap())
    }

    /// The question for it.
    pub fn ask_unread(&mut self, id: ConnId, address: &str, reply: &str) {
        let created_ms = self.store().mailbox(address, self.now).map_or(0, |info| info.created_ms);
        let cid = self.engine.front().cid(id).unwrap_or(u64::MAX);
        let reply = reply.as_bytes();
        let asked = Unread { cid, reply, address, created_ms, always_base64: false };
        self.engine.give_unread(&asked, self.moment());
    }

    pub fn pass_ms(&mut self, ms: u64) {
        self.now.wall_ms += ms;
        self.now.mono_ms += ms;
        self.settle();
        while self.engine.due_in_ms(self.moment()) == Some(0) {
            self.settle();
        }
    }
}

fn moment(now: Now) -> Moment {
    Moment { wall_us: now.wall_ms * 1000, mono_us: now.mono_ms * 1000 }
}
