//! The engine against the model of the store: scripts of several clients as NATS text, in pieces, with syncs, time and
//! ends of connections anywhere. What each client hears is what the model says, once, and not before it is true.
//!
//! `PROPTEST_CASES` sets the number of scripts.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use mq9_core::front::{ConnId, PermissionsBuilder};
use mq9_core::log::{Lsn, SyncMode};
use mq9_core::store::{Fetch, NewMailbox, Options, Send};
use mq9_sim::SimDisk;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::driver::{Driver, START};
use crate::model::{Model, Refusal, Reply};
use crate::script::{ADDRESSES, Ask, CLIENTS, Step, policy};
use crate::wire::{Frame, Said, Shown, frames, json_reply, kept_headers, raw_message, request};

/// Scripts per way to sync, unless the environment says otherwise.
const SCRIPTS: u32 = 1000;
/// Steps of a script.
const LENGTH: usize = 160;

/// A request that has not arrived as a whole.
struct Saying {
    bytes: Vec<u8>,
    ask: Ask,
    payload: String,
    /// Where the answer goes; empty for nowhere.
    reply: String,
    msg_ids: Vec<u64>,
}

/// An answer that somebody must hear.
struct Due {
    said: Said,
    raw: bool,
    /// Not before the log is durable up to here, and by the next settling when it is up to there.
    earliest: Lsn,
    latest: Lsn,
}

/// A FETCH that found nothing yet.
#[derive(Clone)]
struct Wait {
    cid: u64,
    subject: String,
    raw: bool,
    /// The end of the log when it began: its group may be as new.
    begun: Lsn,
}

#[derive(Default)]
struct Client {
    id: ConnId,
    cid: u64,
    said: VecDeque<Saying>,
    /// Bytes of the first of these that have arrived.
    arrived: usize,
    due: BTreeMap<String, Due>,
    violations: usize,
    denied: Option<&'static str>,
}

struct World {
    disk: SimDisk,
    options: Options,
    driver: Driver,
    model: Model,
    clients: Vec<Client>,
    /// By number.
    waits: BTreeMap<u64, Wait>,
    connections: u64,
    requests: u64,
    /// What replies wait for ascends.
    latest: Lsn,
}

impl World {
    fn new(sync: SyncMode) -> World {
        let (disk, connections) = (SimDisk::new(), 0);
        let options = Options {
            sync,
            segment_bytes: 16 << 10,
            allocate_bytes: 4 << 10,
            ack_wait_ms: 2000,
            ..Options::default()
        };
        let mut driver = Driver::with(Arc::new(disk.clone()), options, START).unwrap();
        driver.alone = Some(0);
        let mut model = Model::new(options, START);
        for address in ADDRESSES {
            driver.create(address, policy(address));
            let new = NewMailbox { address, policy: policy(address), ..NewMailbox::default() };
            model.create(&new).unwrap();
        }
        driver.settle();
        let (clients, waits) = (Vec::new(), BTreeMap::new());
        let (requests, latest) = (0, Lsn::NONE);
        let mut world =
            World { disk, options, driver, model, clients, waits, connections, requests, latest };
        (0..CLIENTS).for_each(|at| world.connect(at));
        world
    }

    fn connect(&mut self, at: usize) {
        self.connections += 1;
        let id = self.driver.client();
        let client = Client { id, cid: self.connections, ..Client::default() };
        if at == self.clients.len() { self.clients.push(client) } else { self.clients[at] = client }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Say { client, ref ask, quiet } => self.say(client, ask, quiet),
            Step::Arrive { client, bytes } => self.arrive(client, bytes),
            Step::ArriveAll { client } => self.arrive(client, usize::MAX),
            Step::Settle => self.settle(),
            Step::Sync => self.driver.store().sync().unwrap(),
            Step::Pass { ms } => {
                self.driver.now.wall_ms += ms;
                self.driver.now.mono_ms += ms;
            }
            Step::Disconnect { client } => self.disconnect(client),
            Step::Permit { client, denied } => self.permit(client, denied),
            Step::Checkpoint => self.driver.store().checkpoint().unwrap(),
            Step::Restart => self.restart(),
        }
        self.driver.engine.check_invariants();
    }

    fn say(&mut self, at: usize, ask: &Ask, quiet: bool) {
        self.requests += 1;
        let reply = match quiet {
            true => String::new(),
            false => format!("in{}.{}", self.clients[at].id, self.requests),
        };
        let mut msg_ids = Vec::new();
        if let Ask::Ack { address, group, newest, .. } = ask {
            let mailbox = self.model.find(address);
            let group = mailbox.and_then(|m| m.groups.iter().find(|g| g.name == *group));
            let pending = group.map_or(&[][..], |group| &group.deliveries);
            let id = |nth: &usize| pending.iter().rev().nth(*nth).map_or(*nth as u64, |d| d.msg_id);
            msg_ids = newest.iter().map(id).collect();
        }
        let payload = format!("p{}", self.requests);
        let bytes = request(ask, &payload, &reply, &msg_ids);
        let saying = Saying { bytes, ask: ask.clone(), payload, reply, msg_ids };
        self.clients[at].said.push_back(saying);
    }

    /// Some bytes of what a client has to say arrive, no two whole requests in one piece.
    fn arrive(&mut self, at: usize, bytes: usize) {
        let mut left = bytes;
        while left > 0 && !self.clients[at].said.is_empty() {
            let client = &mut self.clients[at];
            let missing = client.said[0].bytes.len() - client.arrived;
            let mut piece = client.said[0].bytes[client.arrived..][..missing.min(left)].to_vec();
            if left < missing {
                client.arrived += left;
                let id = client.id;
                return self.driver.feed(id, &piece);
            }
            let saying = client.said.pop_front().unwrap();
            left -= missing;
            let next = client.said.front().map_or(&[][..], |next| &next.bytes);
            let more = left.min(next.len().saturating_sub(1));
            piece.extend_from_slice(&next[..more]);
            (client.arrived, left) = (more, left - more);
            let id = client.id;
            let before = self.driver.store().end();
            self.driver.feed(id, &piece);
            self.carry_out(at, &saying, before);
        }
    }

    /// The model does what has just arrived as a whole.
    fn carry_out(&mut self, at: usize, saying: &Saying, before: Lsn) {
        let client = &mut self.clients[at];
        if let (Ask::Fetch { fetch, .. }, Some(denied)) = (&saying.ask, client.denied)
            && fetch.address == denied
        {
            client.violations += 1;
            return;
        }
        let (cid, mut raw) = (client.cid, false);
        self.model.tick(self.driver.now);
        let outcome = match &saying.ask {
            Ask::Send { address, message } => {
                let headers = kept_headers(message);
                let send = Send {
                    memory: false,
                    level: message.level,
                    key: message.key,
                    tags: "",
                    headers: headers.as_bytes(),
                    payload: saying.payload.as_bytes(),
                    delay_ms: message.delay_ms,
                    ttl_ms: message.ttl_ms,
                };
                match message.id {
                    "" => self.model.send(address, &send),
                    id => self.model.send_once(address, id, &send),
                }
            }
            Ask::Fetch { fetch, raw: as_bytes } => {
                raw = *as_bytes;
                let request = Fetch { conn: cid, ..fetch.clone() };
                self.model.fetch(request.clone()).map(|(reply, cursors)| {
                    if reply == Reply::Waiting && !saying.reply.is_empty() {
                        self.model.wait(self.requests, request, cursors);
                        let (subject, begun) = (saying.reply.clone(), self.driver.store().end());
                        self.waits.insert(self.requests, Wait { cid, subject, raw, begun });
                        self.requests += 1;
                    }
                    reply
                })
            }
            Ask::Ack { address, group, kind, .. } => {
                self.model.ack(address, group, &saying.msg_ids, *kind)
            }
        };
        if saying.reply.is_empty() {
            self.clients[at].violations += usize::from(outcome.is_err());
        } else if outcome != Ok(Reply::Waiting) {
            let is_fetch = matches!(saying.ask, Ask::Fetch { .. });
            let after = self.driver.store().end();
            let said = said(outcome, false);
            let earliest = if is_fetch { before } else { after };
            self.owe(cid, saying.reply.clone(), Due { said, raw, earliest, latest: after });
        }
    }

    /// Somebody must hear this, if still there.
    fn owe(&mut self, cid: u64, subject: String, mut due: Due) {
        if due.said == Said::Refused {
            (due.earliest, due.latest) = (Lsn::NONE, Lsn::NONE);
        } else {
            self.latest = self.latest.max(due.latest);
            due.latest = self.latest;
        }
        if let Some(client) = self.clients.iter_mut().find(|client| client.cid == cid) {
            assert!(client.due.insert(subject, due).is_none());
        }
    }

    fn settle(&mut self) {
        let before = self.driver.store().end();
        self.driver.release();
        self.model.tick(self.driver.now);
        let after = self.driver.store().end();
        for (wait, reply) in self.model.completions(&ADDRESSES.map(String::from)) {
            let Wait { cid, subject, raw, begun } = self.waits.remove(&wait).unwrap();
            let said = said(Ok(reply), true);
            let is_empty = matches!(&said, Said::Batch { messages, .. } if messages.is_empty());
            let earliest = if is_empty { begun } else { before };
            self.owe(cid, subject, Due { said, raw, earliest, latest: after });
        }
        self.listen();
        let acknowledged = self.driver.store().acknowledged();
        for client in &self.clients {
            let unheard = client.due.iter().find(|(_, due)| due.latest <= acknowledged);
            assert!(unheard.is_none(), "{:?} was not heard", unheard.map(|(s, d)| (s, &d.said)));
        }
    }

    /// What clients hear is owed to them.
    fn listen(&mut self) {
        let acknowledged = self.driver.store().acknowledged();
        for client in &mut self.clients {
            let mut batches: BTreeMap<String, Vec<Shown>> = BTreeMap::new();
            let text = self.driver.wire(client.id);
            for frame in frames(&text) {
                let (subject, reply, headers, payload) = match frame {
                    Frame::Message { subject, reply, headers, payload } => {
                        (subject, reply, headers, payload)
                    }
                    Frame::Violation => {
                        assert!(client.violations > 0, "a violation of nothing");
                        client.violations -= 1;
                        continue;
                    }
                };
                // A refusal in JSON has its kind in a header.
                let said = if headers.is_empty() || headers.starts_with("NATS/1.0\r\nmq9-error: ") {
                    json_reply(&payload)
                } else {
                    match raw_message(&headers, &payload) {
                        Ok(shown) => {
                            let subject_is_right = reply.is_empty() == (shown.6 == 0)
                                && (reply.is_empty() || reply.contains(&format!(".{}.", shown.0)));
                            assert!(subject_is_right, "{reply} for {shown:?}");
                            batches.entry(subject).or_default().push(shown);
                            continue;
                        }
                        Err(status) => ended(&status, batches.remove(&subject).unwrap_or_default()),
                    }
                };
                let Some(due) = client.due.remove(&subject) else {
                    panic!("{subject} hears {said:?}, which it should not, or not again")
                };
                let said = if due.raw { said } else { without_status(said) };
                let expected = if due.raw { due.said } else { without_status(due.said) };
                assert_eq!(said, expected, "heard at {subject}");
                assert!(due.earliest <= acknowledged, "{subject} hears {said:?} too early");
            }
            assert!(batches.is_empty(), "batches without an end: {batches:?}");
            assert_eq!(client.violations, 0, "violations that nobody was told of");
        }
    }

    fn disconnect(&mut self, at: usize) {
        let Client { id, cid, .. } = self.clients[at];
        self.listen();
        self.driver.leave(id);
        self.model.tick(self.driver.now);
        self.model.disconnect(cid);
        let (waiters, over) = (&self.model.waiters, &self.model.over);
        let goes_on = |wait: u64| {
            waiters.iter().any(|w| w.id == wait) || over.iter().any(|(id, _)| *id == wait)
        };
        self.waits.retain(|wait, _| goes_on(*wait));
        self.connect(at);
    }

    fn permit(&mut self, at: usize, denied: Option<&'static str>) {
        let Client { id, cid, arrived, .. } = self.clients[at];
        if arrived > 0 {
            return;
        }
        self.clients[at].denied = denied;
        let publish_deny = denied.iter().map(|address| format!("$mq9.AI.MSG.FETCH.{address}"));
        let publish_deny = publish_deny.collect();
        self.driver.permit(id, PermissionsBuilder { publish_deny, ..Default::default() });
        let ends =
            |of: &Fetch| of.conn == cid && denied.is_some_and(|address| of.address == address);
        let waiters = self.model.waiters.drain(..).partition(|waiter| ends(&waiter.request));
        let (ended, waiting): (Vec<_>, Vec<_>) = waiters;
        self.model.waiters = waiting;
        for waiter in ended {
            let Wait { cid, subject, raw, .. } = self.waits.remove(&waiter.id).unwrap();
            self.clients[at].violations += 1;
            let (said, earliest, latest) = (Said::Refused, Lsn::NONE, Lsn::NONE);
            self.owe(cid, subject, Due { said, raw, earliest, latest });
        }
    }

    fn restart(&mut self) {
        self.settle();
        self.driver.store().sync().unwrap();
        self.settle();
        let now = self.driver.now;
        self.disk = self.disk.crash_strict();
        let alone = self.driver.alone;
        self.driver = Driver::with(Arc::new(self.disk.clone()), self.options, now).unwrap();
        self.driver.alone = alone;
        self.model.reopen(now);
        (self.waits, self.latest, self.connections) = (BTreeMap::new(), Lsn::NONE, 0);
        (0..CLIENTS).for_each(|at| self.connect(at));
        self.settle();
    }

    /// Everybody has said everything, and time passes until nobody waits: nothing is owed, and what was sent is there.
    /// Says how often the engine synced by itself what one reply waited for.
    fn finish(mut self) -> usize {
        for ms in [0, 1300, 0] {
            (0..CLIENTS).for_each(|at| self.step(&Step::ArriveAll { client: at }));
            self.step(&Step::Pass { ms });
            for step in [Step::Settle, Step::Sync, Step::Settle] {
                self.step(&step);
            }
            if ms > 0 {
                self.look_at_everything();
            }
        }
        assert_eq!(self.waits.len(), 0, "waits without an end");
        for client in &self.clients {
            assert!(client.due.is_empty(), "{:?} unheard", client.due.keys());
        }
        self.step(&Step::Restart);
        self.look_at_everything();
        self.step(&Step::Settle);
        self.driver.alone.unwrap_or_default()
    }

    fn look_at_everything(&mut self) {
        (0..CLIENTS).for_each(|at| self.step(&Step::Permit { client: at, denied: None }));
        for address in ADDRESSES {
            let ask =
                Ask::Fetch { fetch: Fetch { max_msgs: 9999, ..Fetch::all(address) }, raw: false };
            self.step(&Step::Say { client: 0, ask, quiet: false });
            self.step(&Step::ArriveAll { client: 0 });
        }
    }
}

/// How a raw batch ends says whether it was waited for and whether it is empty.
fn ended(status: &str, messages: Vec<Shown>) -> Said {
    match status {
        "204 Batch Completed" if !messages.is_empty() => Said::Batch { messages, waited: false },
        "404 No Messages" if messages.is_empty() => Said::Batch { messages, waited: false },
        "408 Request Timeout" if messages.is_empty() => Said::Batch { messages, waited: true },
        status if status.starts_with("400 ") && messages.is_empty() => Said::Refused,
        _ => panic!("{status} after {messages:?}"),
    }
}

fn without_status(said: Said) -> Said {
    match said {
        Said::Batch { messages, .. } => Said::Batch { messages, waited: false },
        said => said,
    }
}

fn said(outcome: Result<Reply, Refusal>, waited: bool) -> Said {
    let number = |msg_id: Option<u64>| msg_id.map_or(-1, |id| id as i64);
    match outcome {
        Err(_) | Ok(Reply::Refused(_)) => Said::Refused,
        Ok(Reply::Sent(id)) => Said::Sent { msg_id: number(id), duplicate: false },
        Ok(Reply::Once(id, duplicate)) => Said::Sent { msg_id: number(id), duplicate },
        Ok(Reply::Batch(seen)) => {
            let shown = seen.iter().map(|(message, deliveries)| {
                let priority = match message.level {
                    1 => "critical",
                    5 => "normal",
                    _ => "notify",
                };
                let payload = String::from_utf8(message.payload.clone()).unwrap();
                let (create, expires) =
                    (message.create_ms / 1000, message.expires_ms.div_ceil(1000));
                let (id, key) = (message.msg_id, message.key.clone());
                (id, payload, priority.to_owned(), create, key, expires, u64::from(*deliveries))
            });
            let messages: Vec<Shown> = shown.collect();
            Said::Batch { waited: waited && messages.is_empty(), messages }
        }
        Ok(_) => Said::Done,
    }
}

#[derive(Clone)]
struct Script(Vec<Option<u64>>);

impl Script {
    fn steps(&self) -> impl Iterator<Item = (usize, Step)> {
        let steps = self.0.iter().enumerate();
        steps.filter_map(|(nth, seed)| Some((nth, Step::draw((*seed)?))))
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f)?;
        self.steps().try_for_each(|(nth, step)| writeln!(f, "{nth}: {step:?}"))
    }
}

fn play_many(sync: SyncMode) {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let config = Config {
        cases: cases.unwrap_or(SCRIPTS),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Config::default()
    };
    let seed = prop::option::weighted(0.99, any::<u64>().no_shrink());
    let scripts = prop::collection::vec(seed, LENGTH..=LENGTH).prop_map(Script);
    let alone = Cell::new(0);
    let outcome = TestRunner::new(config).run(&scripts, |script| {
        let mut world = World::new(sync);
        script.steps().for_each(|(_, step)| world.step(&step));
        alone.set(alone.get() + world.finish());
        Ok(())
    });
    if sync == SyncMode::Always {
        assert!(alone.get() > 0, "nobody was ever alone");
    }
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

#[test]
fn clients_hear_what_the_model_says_once_it_is_durable() {
    play_many(SyncMode::Always);
}

#[test]
fn clients_hear_what_the_model_says_once_it_is_written() {
    play_many(SyncMode::Interval { ms: 5 });
}
