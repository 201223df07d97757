//! A worker between power cuts: what it was shown stays what it was, what it was promised is kept.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use mq9_core::store::NewMailbox;
use mq9_sim::SimDisk;
use serde_json::Value;

use crate::driver::Driver;

const FETCH: &str = r#"{"group_name":"g","member":"w","config":{"max_wait_ms":0}}"#;
const ALL: &str = r#"{"deliver":"earliest","config":{"max_wait_ms":0}}"#;

/// What a worker saw before the power went.
#[derive(Default)]
struct Seen {
    /// The group was told that there is nothing: it starts with what is sent from then on.
    joined: bool,
    /// Payloads by `msg_id`, as shown.
    shown: BTreeMap<u64, String>,
    /// Payloads whose sending was confirmed.
    sent: BTreeSet<String>,
    /// Messages whose acknowledgement was confirmed.
    acked: BTreeSet<u64>,
}

/// Joins, then sends, fetches and acknowledges every round; only every third round is synced.
fn work(disk: &SimDisk) -> Seen {
    let mut seen = Seen::default();
    let Ok(mut driver) = Driver::on(Arc::new(disk.clone())) else { return seen };
    let new = NewMailbox { address: "m", ..NewMailbox::default() };
    if driver.store().create_mailbox(&new, driver.now).is_err() {
        return seen;
    }
    if driver.store().sync().is_err() {
        return seen;
    }
    let client = driver.client();
    let (mut sending, mut acking) = (VecDeque::new(), VecDeque::new());
    for round in 0..24 {
        let payload = format!("p{round:03}");
        if seen.joined && round % 2 == 0 {
            driver.request(client, "SEND.m", "", payload.as_bytes());
            sending.push_back(payload);
        } else if seen.joined {
            // Nobody waits for an answer to this one.
            let quiet = format!("PUB $mq9.AI.MSG.SEND.m 4\r\n{payload}\r\n");
            driver.feed(client, quiet.as_bytes());
        }
        driver.request(client, "FETCH.m", "", FETCH.as_bytes());
        let outcome = if round % 3 == 2 { driver.store().sync() } else { driver.store().flush() };
        if outcome.is_err() || disk.is_cut() {
            break;
        }
        driver.release();
        for reply in driver.heard(client) {
            let reply: Value = serde_json::from_str(&reply).unwrap();
            if let Some(messages) = reply["messages"].as_array() {
                seen.joined = true;
                for message in messages {
                    let id = message["msg_id"].as_u64().unwrap();
                    seen.shown.insert(id, message["payload"].as_str().unwrap().to_owned());
                    let ack = format!(r#"{{"group_name":"g","msg_id":{id},"only":true}}"#);
                    driver.request(client, "ACK.m", "", ack.as_bytes());
                    acking.push_back(id);
                }
            } else if reply["msg_id"].is_u64() {
                seen.sent.extend(sending.pop_front());
            } else if reply["error"] == "" {
                seen.acked.extend(acking.pop_front());
            }
        }
    }
    seen
}

#[test]
fn a_worker_loses_nothing_by_a_power_cut_at_any_operation() {
    let whole = SimDisk::new();
    let all = work(&whole);
    assert!(all.sent.len() > 8 && all.acked.len() > 8, "the session does its work");
    for cut in 0..whole.ops() {
        let disk = SimDisk::new();
        disk.cut_at(cut);
        let seen = work(&disk);
        for after in [disk.crash_strict(), disk.crash(cut), disk.crash_lucky()] {
            let mut driver = Driver::on(Arc::new(after)).unwrap();
            let client = driver.client();
            let stored = messages(&driver.ask(client, "FETCH.m", "", ALL));
            for (id, payload) in &seen.shown {
                assert_eq!(stored.get(id), Some(payload), "cut at {cut}: another message {id}");
            }
            // The next FETCH of the group gets everything that was sent since it joined and that it
            // has not seen, and nothing that it has acknowledged.
            driver.ask(client, "SEND.m", "", "after");
            let given = messages(&driver.ask(client, "FETCH.m", "", FETCH));
            let came = given.values().any(|payload| payload == "after");
            assert!(came || !seen.joined, "cut at {cut}: the group forgot that it was there");
            for payload in &seen.sent {
                let id = stored.iter().find(|(_, stored)| *stored == payload);
                let (id, _) = id.unwrap_or_else(|| panic!("cut at {cut}: {payload} is lost"));
                let is_new = !seen.shown.contains_key(id);
                assert!(!is_new || given.contains_key(id), "cut at {cut}: {payload} passed over");
            }
            for id in &seen.acked {
                assert!(!given.contains_key(id), "cut at {cut}: {id} was acknowledged");
            }
        }
    }
}

fn messages(reply: &str) -> BTreeMap<u64, String> {
    let reply: Value = serde_json::from_str(reply).unwrap();
    let messages = reply["messages"].as_array().cloned().unwrap_or_default();
    let entry = |message: &Value| {
        (message["msg_id"].as_u64().unwrap(), message["payload"].as_str().unwrap().to_owned())
    };
    messages.iter().map(entry).collect()
}
