//! Sessions with groups, keys, ids, delays and dead letters, cut at every operation of the disk: what a client was told
//! holds when the engine runs again, and what it does again has no effect twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mq9_core::front::ConnId;
use mq9_core::mailbox::Policy;
use mq9_core::store::{NewMailbox, Options};
use mq9_core::time::Now;
use mq9_sim::SimDisk;
use serde_json::Value;

use crate::driver::{Driver, START};

const OPTIONS: Options = Options {
    segment_bytes: 4096,
    allocate_bytes: 4096,
    sync: mq9_core::log::SyncMode::Always,
    ack_wait_ms: 30_000,
    max_groups: 16,
    group_ttl_ms: 0,
    quotas: mq9_core::store::Quotas::DEFAULT,
    checkpoint_bytes: 6_000,
};
const FETCH: &str = r#"{"group_name":"g","deliver":"earliest","config":{"max_wait_ms":0}}"#;
const ALL: &str = r#"{"deliver":"earliest","config":{"max_wait_ms":0}}"#;

/// A request that may have been carried out.
#[derive(Debug, Clone)]
enum Asked {
    Send {
        address: &'static str,
        headers: String,
        payload: String,
    },
    Fetch {
        address: &'static str,
    },
    /// Kind and `msg_id`.
    Ack {
        address: &'static str,
        kind: &'static str,
        msg_id: u64,
    },
}

/// A client, what it asked, and what it was told by the time the power went.
struct Session {
    driver: Driver,
    disk: SimDisk,
    client: ConnId,
    asked: Vec<Asked>,
    told: BTreeMap<usize, Value>,
}

/// The power has gone: nothing more happens.
struct Cut;

impl Session {
    fn begin(disk: &SimDisk) -> Option<Session> {
        let mut driver = Driver::with(Arc::new(disk.clone()), OPTIONS, START).ok()?;
        let client = driver.client();
        let (asked, told) = (Vec::new(), BTreeMap::new());
        Some(Session { driver, disk: disk.clone(), client, asked, told })
    }

    fn ask(&mut self, asked: Asked) {
        let nth = self.asked.len();
        let (command, headers, payload) = match &asked {
            Asked::Send { address, headers, payload } => {
                (format!("SEND.{address}"), headers.clone(), payload.clone())
            }
            Asked::Fetch { address } => (format!("FETCH.{address}"), String::new(), FETCH.into()),
            Asked::Ack { address, kind, msg_id } => {
                let rest = if *kind == "ack" { r#","only":true"# } else { "" };
                let body =
                    format!(r#"{{"group_name":"g","msg_id":{msg_id},"kind":"{kind}"{rest}}}"#);
                (format!("ACK.{address}"), String::new(), body)
            }
        };
        assert_eq!(self.driver.next_request(), nth as u64 + 1);
        self.asked.push(asked);
        self.driver.request(self.client, &command, &headers, payload.as_bytes());
    }

    fn send(&mut self, address: &'static str, headers: &str, payload: &str) {
        let (headers, payload) = (headers.to_owned(), payload.to_owned());
        self.ask(Asked::Send { address, headers, payload });
    }

    /// Lets what is durable be told; with `sync` that is everything.
    fn settle(&mut self, sync: bool) -> Result<(), Cut> {
        self.driver.release();
        if sync {
            let _ = self.driver.store().sync();
            self.driver.release();
        }
        for (subject, payload) in self.driver.heard_at(self.client) {
            let nth: usize = subject.rsplit('.').next().unwrap().parse().unwrap();
            let told = serde_json::from_str(&payload).unwrap();
            assert!(self.told.insert(nth - 1, told).is_none(), "{subject} was told twice");
        }
        if self.disk.is_cut() { Err(Cut) } else { Ok(()) }
    }

    /// The ids of the last batch of a mailbox that was shown.
    fn batch(&self, address: &str) -> Vec<u64> {
        let of = |(nth, told): (&usize, &Value)| match &self.asked[*nth] {
            Asked::Fetch { address: of } if *of == address => {
                let messages = told["messages"].as_array()?.clone();
                Some(messages.iter().map(|m| m["msg_id"].as_u64().unwrap()).collect())
            }
            _ => None,
        };
        self.told.iter().rev().find_map(of).unwrap_or_default()
    }

    fn play(&mut self) -> Result<(), Cut> {
        let dying =
            Policy { max_deliver: 2, dead_letter: Some("dead".into()), ..Policy::default() };
        for (address, policy) in [("a", Policy::default()), ("q", dying)] {
            let new = NewMailbox { address, policy, ..NewMailbox::default() };
            let now = self.driver.now;
            self.driver.store().create_mailbox(&new, now).map_err(|_| Cut)?;
        }
        self.driver.store().sync().map_err(|_| Cut)?;
        for address in ["a", "q"] {
            self.ask(Asked::Fetch { address });
        }
        self.settle(true)?;
        for round in 0..5 {
            for (name, headers) in [
                ("plain", ""),
                ("id", "mq9-id: ID\r\n"),
                ("key", "mq9-key: k\r\nmq9-priority: urgent\r\n"),
                ("later", "mq9-delay-ms: 400\r\nmq9-id: later-ID\r\n"),
            ] {
                let headers = headers.replace("ID", &format!("r{round}"));
                self.send("a", &headers, &format!("{name}-{round}-{}", "x".repeat(60)));
            }
            for nth in 0..3 {
                self.send("q", "", &format!("job-{round}-{nth}"));
            }
            self.settle(round % 2 == 0)?;
            for address in ["a", "q"] {
                self.ask(Asked::Fetch { address });
            }
            self.settle(true)?;
            let kinds = ["ack", "nak", "term", "ack", "nak"];
            for address in ["a", "q"] {
                for (msg_id, kind) in self.batch(address).into_iter().zip(kinds) {
                    self.ask(Asked::Ack { address, kind, msg_id });
                }
            }
            self.settle(round % 3 != 1)?;
            // Delayed messages are due; once, the leases of all that is out end.
            let passes = if round == 2 { 31_000 } else { 450 };
            self.driver.now.wall_ms += passes;
            self.driver.now.mono_ms += passes;
            self.settle(round % 3 == 2)?;
            if round == 3 {
                let _ = self.driver.store().checkpoint();
            }
        }
        self.settle(true)
    }

    /// What was asked, each with the answer if that was a promise.
    fn all(&self) -> impl Iterator<Item = (&Asked, Option<&Value>)> {
        let promised = |nth: &usize| self.told.get(nth).filter(|told| told["error"] == "");
        self.asked.iter().enumerate().map(move |(nth, asked)| (asked, promised(&nth)))
    }

    fn sends(&self, to: &str) -> Vec<(&str, &str, Option<&Value>)> {
        let sends = self.all().filter_map(|(asked, told)| match asked {
            Asked::Send { address, headers, payload } if *address == to => {
                Some((headers.as_str(), payload.as_str(), told))
            }
            _ => None,
        });
        sends.collect()
    }

    /// Messages of which this was said, and those for which it was promised.
    fn acks(&self, to: &str, which: &[&str]) -> (BTreeSet<u64>, BTreeSet<u64>) {
        let acks = self.all().filter_map(|(asked, told)| match *asked {
            Asked::Ack { address, kind, msg_id } if address == to && which.contains(&kind) => {
                Some((msg_id, told.is_some()))
            }
            _ => None,
        });
        let all: Vec<(u64, bool)> = acks.collect();
        let promised = all.iter().filter(|(_, told)| *told).map(|(id, _)| *id).collect();
        (all.into_iter().map(|(id, _)| id).collect(), promised)
    }
}

/// The engine after the power cut, and a client of it.
struct After {
    driver: Driver,
    client: ConnId,
}

impl After {
    fn messages(&mut self, address: &str, body: &str) -> BTreeMap<u64, String> {
        let reply = self.driver.ask(self.client, &format!("FETCH.{address}"), "", body);
        let reply: Value = serde_json::from_str(&reply).unwrap();
        let messages = reply["messages"].as_array().cloned().unwrap_or_default();
        let entry =
            |m: &Value| (m["msg_id"].as_u64().unwrap(), m["payload"].as_str().unwrap().to_owned());
        messages.iter().map(entry).collect()
    }

    fn ask(&mut self, command: &str, headers: &str, payload: &str) -> Value {
        let reply = self.driver.ask(self.client, command, headers, payload);
        serde_json::from_str(&reply).unwrap()
    }
}

fn copies(of: &BTreeMap<u64, String>, payload: &str) -> usize {
    of.values().filter(|stored| *stored == payload).count()
}

/// What was promised of the mailbox with keys, ids and delays.
fn check_mail(seen: &Session, after: &mut After) {
    let stored = after.messages("a", ALL);
    let sends = seen.sends("a");
    let last_key =
        sends.iter().rposition(|(headers, _, told)| headers.contains("mq9-key") && told.is_some());
    for (nth, (headers, payload, told)) in sends.iter().enumerate() {
        let is_keyed = headers.contains("mq9-key");
        let Some(id) = told.and_then(|told| told["msg_id"].as_u64()) else { continue };
        if !is_keyed {
            assert_eq!(stored.get(&id).map(String::as_str), Some(*payload), "message {id}");
        } else if Some(nth) == last_key {
            let newer = sends[nth..].iter().filter(|(headers, ..)| headers.contains("mq9-key"));
            let found: usize = newer.map(|(_, payload, _)| copies(&stored, payload)).sum();
            assert_eq!(found, 1, "the message of the key: {stored:?}");
        }
    }
    let given = after.messages("a", FETCH);
    let (done, done_for_sure) = seen.acks("a", &["ack", "term"]);
    for id in &done_for_sure {
        assert!(!given.contains_key(id), "{id} was acknowledged and comes again");
    }
    let (_, returned) = seen.acks("a", &["nak"]);
    for id in returned.difference(&done).filter(|id| stored.contains_key(id)) {
        assert!(given.contains_key(id), "{id} was returned and does not come again");
    }
    for (_, payload, told) in &sends {
        let id = told.and_then(|told| told["msg_id"].as_u64());
        let Some(id) = id.filter(|id| stored.contains_key(id) && !done.contains(id)) else {
            continue;
        };
        assert!(given.contains_key(&id), "{payload} is passed over");
    }
    // Whoever was not answered asks again: with an id that is always safe.
    for (headers, payload, told) in sends.iter().filter(|(headers, ..)| headers.contains("mq9-id"))
    {
        let again = after.ask("SEND.a", headers, payload);
        assert_eq!(again["error"], "");
        if let Some(told) = told {
            let duplicate = again["duplicate"] == true && again["msg_id"] == told["msg_id"];
            assert!(duplicate, "{payload} was sent again: {again}, not {told}");
        }
    }
    after.driver.pass_ms(1000);
    let stored = after.messages("a", ALL);
    for (headers, payload, told) in &sends {
        let found = copies(&stored, payload);
        let expected = match headers {
            headers if headers.contains("mq9-key") => 0..=1,
            headers if headers.contains("mq9-id") => 1..=1,
            _ if told.is_some() => 1..=1,
            _ => 0..=1,
        };
        assert!(expected.contains(&found), "{found} copies of {payload}");
    }
}

/// What was promised of the mailbox whose messages die.
fn check_dead_letters(seen: &Session, after: &mut After) {
    let stored = after.messages("q", ALL);
    let given = after.messages("q", FETCH);
    let dead = after.messages("dead", ALL);
    let sent_to_dead: Vec<&String> = dead.values().collect();
    let (acked, acked_for_sure) = seen.acks("q", &["ack"]);
    let (_, terminated) = seen.acks("q", &["term"]);
    for (_, payload, told) in seen.sends("q") {
        let died = copies(&dead, payload);
        let id = stored.iter().find(|(_, stored)| *stored == payload).map(|(id, _)| *id);
        assert!(died <= 1, "{payload} died {died} times");
        let Some(id) = id else {
            assert!(told.is_none() && died == 0, "{payload} is lost");
            continue;
        };
        let comes = given.contains_key(&id);
        assert!(!(comes && died > 0), "{payload} is dead and comes again: {sent_to_dead:?}");
        assert!(comes || died > 0 || acked.contains(&id), "{payload} is neither here nor there");
        assert!(!(comes && acked_for_sure.contains(&id)), "{payload} was acknowledged");
        assert!(
            !terminated.contains(&id) || died == 1,
            "{payload} was terminated, and is not dead"
        );
    }
    // What still comes dies if it is returned often enough: once.
    for _ in 0..3 {
        for id in after.messages("q", FETCH).into_keys() {
            let nak = format!(r#"{{"group_name":"g","msg_id":{id},"kind":"nak"}}"#);
            assert_eq!(after.ask("ACK.q", "", &nak)["error"], "");
        }
    }
    assert_eq!(after.messages("q", FETCH), BTreeMap::new());
    let dead = after.messages("dead", ALL);
    for payload in given.values().chain(sent_to_dead) {
        assert_eq!(copies(&dead, payload), 1, "copies of {payload} among the dead");
    }
}

fn play(disk: &SimDisk) -> Option<Session> {
    let mut session = Session::begin(disk)?;
    let _ = session.play();
    Some(session)
}

#[test]
fn what_a_client_was_told_holds_after_a_power_cut_at_any_operation() {
    let whole = SimDisk::new();
    let session = play(&whole).unwrap();
    assert_eq!(session.told.len(), session.asked.len(), "everything was answered");
    for kinds in ["ack", "nak", "term"] {
        assert!(session.acks("q", &[kinds]).1.len() > 1, "{kinds}: {:?}", session.told);
    }
    let mut told = 0;
    for cut in 1..=whole.ops() {
        let disk = SimDisk::new();
        disk.cut_at(cut);
        let Some(seen) = play(&disk) else { continue };
        told += seen.told.len();
        let Now { wall_ms, mono_ms } = seen.driver.now;
        for (how, crashed) in [
            ("strict", disk.crash_strict()),
            ("some", disk.crash(cut)),
            ("lucky", disk.crash_lucky()),
        ] {
            let check = || {
                let now = Now { wall_ms: wall_ms + 1, mono_ms: mono_ms + 1 };
                let mut driver = Driver::with(Arc::new(crashed.snapshot()), OPTIONS, now).unwrap();
                driver.settle();
                let client = driver.client();
                let mut after = After { driver, client };
                if after.driver.store().mailbox("q", now).is_ok() {
                    check_mail(&seen, &mut after);
                    check_dead_letters(&seen, &mut after);
                } else {
                    assert!(seen.told.is_empty(), "the mailboxes are lost");
                }
            };
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check));
            assert!(outcome.is_ok(), "cut at {cut}, {how}");
        }
    }
    assert!(told > 1000, "only {told} promises");
}
