//! A client of a broker with a store on a simulated disk, and a clock to turn.

use std::sync::Arc;

use mq9_core::broker::{
    Broker, Called, ConnId, Desk, DeskCall, Event, Limits, Permissions, PermissionsBuilder, Terms,
};
use mq9_core::disk::Disk;
use mq9_core::error::Result;
use mq9_core::mailbox::Policy;
use mq9_core::post::{Post, PostOptions};
use mq9_core::store::{NewMailbox, Options, Store};
use mq9_core::time::Now;
use mq9_sim::SimDisk;

pub const START: Now = Now { wall_ms: 1_700_000_000_000, mono_ms: 5_000 };

pub struct Office {
    pub store: Store,
    pub post: Post,
    pub broker: Broker,
    pub now: Now,
    requests: u64,
}

struct Counter<'a>(&'a mut Post, &'a mut Store, Now);

impl Desk for Counter<'_> {
    fn call(&mut self, call: &DeskCall<'_>) -> Called {
        self.0.call(self.1, call, self.2)
    }

    fn refuse(&mut self, call: &DeskCall<'_>, problem: &str) {
        self.0.refuse(call, problem);
    }

    fn enforce(&mut self, cid: u64, rules: &Permissions) -> Vec<Vec<u8>> {
        self.0.enforce(self.1, cid, rules)
    }

    fn has_room(&self, cid: u64, most: usize) -> bool {
        self.0.has_room(cid, most)
    }
}

impl Office {
    /// With mailbox `m`.
    pub fn new() -> Self {
        let mut office = Self::on(Arc::new(SimDisk::new())).unwrap();
        office.create("m", Policy::default());
        office
    }

    pub fn on(disk: Arc<dyn Disk>) -> Result<Self> {
        let store = Store::open(disk, Options::default(), 42, START)?;
        let post = Post::new(PostOptions::default());
        let broker = Broker::new(Limits::default(), 1, 0);
        Ok(Self { store, post, broker, now: START, requests: 0 })
    }

    pub fn create(&mut self, address: &str, policy: Policy) {
        let new = NewMailbox { address, policy, ..Default::default() };
        self.store.create_mailbox(&new, self.now).unwrap();
    }

    /// A client that listens to its inbox.
    pub fn client(&mut self) -> ConnId {
        let id = self.broker.open(false, 0);
        self.feed(id, format!("CONNECT {{}}\r\nSUB in{id}.> 1\r\n").as_bytes());
        id
    }

    /// Input without a look at what it brought about.
    pub fn feed_only(&mut self, id: ConnId, bytes: &[u8]) {
        let mut counter = Counter(&mut self.post, &mut self.store, self.now);
        self.broker.feed(id, bytes, &mut counter, 0);
    }

    /// Goes on with what waited for room.
    pub fn retry_held(&mut self) {
        let mut counter = Counter(&mut self.post, &mut self.store, self.now);
        self.broker.retry_held(&mut counter, 0);
    }

    pub fn feed(&mut self, id: ConnId, bytes: &[u8]) {
        self.feed_only(id, bytes);
        while let Some(event) = self.broker.next_event() {
            if let Event::Connect { conn, .. } = event {
                let terms = Terms {
                    verbose: false,
                    pedantic: false,
                    headers: true,
                    no_responders: true,
                    ..Terms::default()
                };
                let mut counter = Counter(&mut self.post, &mut self.store, self.now);
                self.broker.accept(conn, terms, &mut counter, 0);
            }
        }
    }

    /// What has come for a client, as it is on the wire.
    pub fn wire(&mut self, id: ConnId) -> String {
        let text = String::from_utf8_lossy(self.broker.unwritten(id)).into_owned();
        self.broker.written(id, usize::MAX);
        text
    }

    /// Gives a client other permissions.
    pub fn permit(&mut self, id: ConnId, rules: PermissionsBuilder) {
        let rules = Some(Arc::new(rules.build().unwrap()));
        let mut counter = Counter(&mut self.post, &mut self.store, self.now);
        self.broker.set_permissions(id, rules, &mut counter);
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

    /// Ends what waits, makes everything durable, and lets the replies go.
    pub fn settle(&mut self) {
        self.post.collect(&mut self.store, self.now);
        self.store.sync().unwrap();
        self.release();
    }

    /// Publishes the replies that may leave.
    pub fn release(&mut self) {
        while let Some(reply) = self.post.next_reply(self.store.acknowledged()) {
            let mut counter = Counter(&mut self.post, &mut self.store, self.now);
            reply.publish(|answer_to, headers, payload| {
                let (cid, subject) = (reply.cid, &reply.subject);
                self.broker.answer(cid, subject, answer_to, headers, payload, &mut counter);
            });
        }
    }

    /// What has come for a client, without the lines in front of it.
    pub fn heard(&mut self, id: ConnId) -> Vec<String> {
        let text = String::from_utf8_lossy(self.broker.unwritten(id)).into_owned();
        self.broker.written(id, usize::MAX);
        let mut rest = text.as_str();
        let mut messages = Vec::new();
        while let Some((line, more)) = rest.split_once("\r\n") {
            let size: usize = line.rsplit(' ').next().unwrap().parse().unwrap();
            messages.push(more[..size].to_owned());
            rest = &more[size + 2..];
        }
        messages
    }

    /// The answer to a request, once everything is durable.
    pub fn ask(&mut self, id: ConnId, command: &str, headers: &str, payload: &str) -> String {
        self.request(id, command, headers, payload.as_bytes());
        self.settle();
        self.heard(id).join("|")
    }

    pub fn pass_ms(&mut self, ms: u64) {
        self.now.wall_ms += ms;
        self.now.mono_ms += ms;
        while self.store.tick(self.now) {}
        self.settle();
    }
}
