//! Broadcasts that are stored: who hears them, when, how often, and in which order.

use std::sync::Arc;

use mq9_core::front::{
    Call, ConnId, Front, Handled, Handler, Limits, Permissions, PermissionsBuilder, SubId,
    Subscribing,
};
use mq9_core::mailbox::Policy;
use mq9_core::partition::RequestHandler;
use mq9_core::protocol::WireOptions;
use mq9_core::store::{BroadcastLimits, Options, Store};
use mq9_sim::{Fault, Faults, FaultyDisk, Operation, SimDisk};

use crate::driver::{Driver, START};
use crate::push::{given, payloads, publish, say};
use crate::push_model::Dice;

/// Publishes a broadcast that is to be stored; the text of it.
pub fn stored(event: &str, reply: &str, headers: &str, payload: &str) -> String {
    let block = format!("NATS/1.0\r\nmq9-persist: true\r\n{headers}\r\n");
    let (head, total) = (block.len(), block.len() + payload.len());
    format!("HPUB $mq9.AI.BROADCAST.{event} {reply} {head} {total}\r\n{block}{payload}\r\n")
}

fn store(driver: &mut Driver, id: ConnId, event: &str, payload: &str) {
    say(driver, id, &stored(event, "", "", payload));
}

fn with(disk: &SimDisk, broadcasts: BroadcastLimits) -> Driver {
    let served = WireOptions { broadcasts, ..WireOptions::default() };
    Driver::serving(Arc::new(disk.clone()), Options::default(), served, START).unwrap()
}

/// Lets everything happen that waits for nobody.
fn settle(driver: &mut Driver) {
    driver.settle();
    while driver.engine.wants_to_settle(driver.moment()) {
        driver.settle();
    }
}

#[test]
fn a_stored_broadcast_is_heard_live_and_by_who_listens_later() {
    let mut driver = Driver::new();
    let (sender, live) = (driver.client(), driver.client());
    say(&mut driver, live, "SUB $mq9.AI.BROADCAST.system.* 2\r\n");
    store(&mut driver, sender, "system.down", "a");
    publish(&mut driver, sender, "BROADCAST.system.down", "not stored");
    store(&mut driver, sender, "task.new", "b");
    store(&mut driver, sender, "system.up", "c");
    assert_eq!(driver.wire(sender), "");
    let heard = given(&mut driver, live);
    assert_eq!(heard[0], "2 BROADCAST.system.down a");
    assert_eq!(heard[1..], ["2 BROADCAST.system.down not stored", "2 BROADCAST.system.up c"]);
    for (pattern, expected) in [
        ("system.down", "a"),
        ("system.*", "a c"),
        ("*.new", "b"),
        (">", "a b c"),
        ("#", "a b c"),
        ("data.>", ""),
    ] {
        let later = driver.client();
        say(&mut driver, later, &format!("SUB $mq9.AI.BROADCAST.{pattern} 2\r\n"));
        assert_eq!(payloads(&mut driver, later).join(" "), expected, "{pattern}");
        store(&mut driver, sender, "system.down", "live");
        let hears = nats_hears(pattern);
        assert_eq!(payloads(&mut driver, later), ["live"][..usize::from(hears)], "{pattern}");
        let all = driver.engine.front().subscriptions_of(later).count();
        assert_eq!(all, 2);
        // What it was told just now is stored too: forget it.
        let now = driver.now;
        let last = driver.store().mailbox(mq9_core::store::BROADCASTS, now).unwrap();
        let last = last.next_id - 1;
        driver.store().delete(mq9_core::store::BROADCASTS, last, now).unwrap();
    }
}

fn nats_hears(pattern: &str) -> bool {
    !["*.new", "data.>"].contains(&pattern)
}

#[test]
fn it_carries_its_number_and_is_answered_when_it_is_durable() {
    let mut driver = Driver::new();
    let (sender, live) = (driver.client(), driver.client());
    say(&mut driver, live, "SUB $mq9.AI.BROADCAST.> 2\r\n");
    driver.store().sync().unwrap();
    let text = stored("a.b", &format!("in{sender}.x"), "X-A: 1\r\nmq9-ttl: 60\r\n", "hi");
    driver.feed(sender, text.as_bytes());
    driver.release();
    driver.store().flush().unwrap();
    driver.release();
    assert_eq!((driver.wire(live), driver.wire(sender)), (String::new(), String::new()));
    driver.settle();
    assert_eq!(driver.heard(sender), [r#"{"error":"","msg_id":0}"#]);
    let heard = driver.wire(live);
    for part in [
        "HMSG $mq9.AI.BROADCAST.a.b 2 ",
        "mq9-msg-id: 0\r\n",
        "mq9-create-time: 1700000000\r\n",
        "mq9-expires-at: 1700000060\r\n",
        "X-A: 1\r\n",
        "\r\n\r\nhi\r\n",
    ] {
        assert!(heard.contains(part), "{part:?} in {heard}");
    }
    // Whoever comes later is given the very same.
    let later = driver.client();
    say(&mut driver, later, "SUB $mq9.AI.BROADCAST.> 2\r\n");
    assert_eq!(driver.wire(later), heard);
    driver.pass_ms(61_000);
    let too_late = driver.client();
    say(&mut driver, too_late, "SUB $mq9.AI.BROADCAST.> 2\r\n");
    assert_eq!(driver.wire(too_late), "");
}

#[test]
fn the_same_id_is_told_once() {
    let mut driver = Driver::new();
    let (sender, live) = (driver.client(), driver.client());
    say(&mut driver, live, "SUB $mq9.AI.BROADCAST.> 2\r\n");
    for answer in [r#"{"error":"","msg_id":0}"#, r#"{"error":"","msg_id":0,"duplicate":true}"#] {
        say(&mut driver, sender, &stored("a.b", &format!("in{sender}.x"), "mq9-id: 7\r\n", "x"));
        assert_eq!(driver.heard(sender), [answer]);
    }
    assert_eq!(payloads(&mut driver, live), ["x"]);
}

#[test]
fn what_cannot_be_stored_is_told_nobody_and_its_sender_why() {
    let disk = SimDisk::new();
    let mut driver = with(&disk, BroadcastLimits::default());
    let (sender, live) = (driver.client(), driver.client());
    say(&mut driver, live, "SUB $mq9.AI.BROADCAST.> 2\r\n");
    let long = format!("a.{}", "b".repeat(4090));
    for (event, headers, why) in [
        ("a.b", "mq9-key: k\r\n", "mq9-key is not for broadcasts that are stored"),
        ("a.b", "mq9-tags: k\r\n", "mq9-tags is not for broadcasts that are stored"),
        ("a.b", "mq9-delay: 1\r\n", "mq9-delay is not for broadcasts that are stored"),
        ("a.b", "mq9-priority: urgent\r\n", "mq9-priority is not for broadcasts that are stored"),
        ("a.b", "mq9-persist: true\r\n", "mq9-persist is given more than once"),
        ("a.b", "mq9-msg-id: 1\r\n", "mq9-msg-id is a header that only the broker writes"),
        ("a.*", "", "a domain and an event, without wildcards"),
        (&long[..], "", "at most 4096 can be stored"),
    ] {
        let mut limits = *driver.engine.front().limits();
        limits.max_control_line = 1 << 16;
        driver.engine.front_mut().set_limits(limits);
        say(&mut driver, sender, &stored(event, &format!("in{sender}.x"), headers, "x"));
        let answer = driver.heard(sender).remove(0);
        assert!(answer.contains(why) && answer.contains(r#""msg_id":-1"#), "{answer}");
        say(&mut driver, sender, &stored(event, "", headers, "x"));
        let error = format!(
            "-ERR 'Permissions Violation for Publish to \"$mq9.AI.BROADCAST.{event}\"'\r\n"
        );
        assert_eq!(driver.wire(sender), error);
        assert_eq!(driver.wire(live), "", "{headers}");
    }
    // Nor may it pretend to be stored.
    let block = "NATS/1.0\r\nMQ9-msg-id: 9\r\n\r\n";
    let head = block.len();
    say(&mut driver, sender, &format!("HPUB $mq9.AI.BROADCAST.a.b {head} {head}\r\n{block}\r\n"));
    assert!(driver.wire(sender).contains("Publish to \"$mq9.AI.BROADCAST.a.b\""));
    assert_eq!(driver.wire(live), "");
    // It is no wish to store it.
    let block = "NATS/1.0\r\nMQ9-Persist: false\r\n\r\n";
    let head = block.len();
    say(&mut driver, sender, &format!("HPUB $mq9.AI.BROADCAST.a.b {head} {head}\r\n{block}\r\n"));
    assert_eq!(given(&mut driver, live), ["2 BROADCAST.a.b "]);
    drop(driver);
    let mut driver = with(&disk, BroadcastLimits { max_msgs: 0, ..BroadcastLimits::default() });
    let sender = driver.client();
    say(&mut driver, sender, &stored("a.b", &format!("in{sender}.x"), "", "x"));
    let answer = driver.heard(sender).remove(0);
    assert!(answer.contains("its max_broadcasts is 0"), "{answer}");
}

#[test]
fn the_oldest_go_beyond_the_limit_and_with_their_age() {
    let disk = SimDisk::new();
    let limits = BroadcastLimits { max_msgs: 3, max_bytes: 0, max_age_ms: 10_000 };
    let mut driver = with(&disk, limits);
    let (sender, live) = (driver.client(), driver.client());
    say(&mut driver, live, "SUB $mq9.AI.BROADCAST.> 2\r\n");
    // Whoever listens hears all of them, though most have gone by the time they are durable.
    let text: String = (0..10).map(|nth| stored("a.b", "", "", &nth.to_string())).collect();
    say(&mut driver, sender, &text);
    let all: Vec<String> = (0..10).map(|nth| nth.to_string()).collect();
    assert_eq!(payloads(&mut driver, live), all);
    let later = driver.client();
    say(&mut driver, later, "SUB $mq9.AI.BROADCAST.> 2\r\n");
    assert_eq!(payloads(&mut driver, later), ["7", "8", "9"]);
    driver.settle();
    drop(driver);
    // Limits that the operator has changed hold for what is there.
    let mut driver = with(&disk, BroadcastLimits { max_msgs: 2, ..limits });
    let later = driver.client();
    say(&mut driver, later, "SUB $mq9.AI.BROADCAST.> 2\r\n");
    assert_eq!(payloads(&mut driver, later), ["8", "9"]);
    driver.pass_ms(10_001);
    let too_late = driver.client();
    say(&mut driver, too_late, "SUB $mq9.AI.BROADCAST.> 2\r\n");
    assert_eq!(driver.wire(too_late), "");
}

#[test]
fn bytes_of_stored_broadcasts_are_limited() {
    let limits = BroadcastLimits { max_bytes: 10_000, ..BroadcastLimits::default() };
    let mut driver = with(&SimDisk::new(), limits);
    let sender = driver.client();
    for _ in 0..30 {
        store(&mut driver, sender, "a.b", &"x".repeat(1000));
    }
    let info = driver.store().mailbox(mq9_core::store::BROADCASTS, START).unwrap();
    assert!((5..10).contains(&info.messages) && info.bytes <= 10_000, "{info:?}");
}

#[test]
fn stored_broadcasts_outlive_a_restart() {
    let disk = SimDisk::new();
    let mut driver = with(&disk, BroadcastLimits::default());
    let sender = driver.client();
    store(&mut driver, sender, "a.b", "1");
    store(&mut driver, sender, "a.c", "2");
    drop(driver);
    let mut driver = with(&disk, BroadcastLimits::default());
    let (sender, reader) = (driver.client(), driver.client());
    store(&mut driver, sender, "a.b", "3");
    say(&mut driver, reader, "SUB $mq9.AI.BROADCAST.a.b 2\r\n");
    assert_eq!(payloads(&mut driver, reader), ["1", "3"]);
}

#[test]
fn members_of_a_queue_group_share_what_is_told_and_are_given_nothing_old() {
    let mut driver = Driver::new();
    let (sender, a, b) = (driver.client(), driver.client(), driver.client());
    store(&mut driver, sender, "a.b", "old");
    for reader in [a, b] {
        say(&mut driver, reader, "SUB $mq9.AI.BROADCAST.a.b workers 2\r\n");
    }
    for nth in 0..10 {
        store(&mut driver, sender, "a.b", &nth.to_string());
    }
    let mut all = payloads(&mut driver, a);
    all.extend(payloads(&mut driver, b));
    all.sort();
    assert_eq!(all, (0..10).map(|nth| nth.to_string()).collect::<Vec<_>>());
}

#[test]
fn permissions_count_for_what_was_told_before() {
    let mut driver = Driver::new();
    let (sender, reader) = (driver.client(), driver.client());
    for event in ["system.down", "task.new", "system.up", "task.old"] {
        store(&mut driver, sender, event, event);
    }
    let deny = |subject: &str| PermissionsBuilder {
        subscribe_deny: vec![subject.to_owned()],
        ..Default::default()
    };
    driver.permit(reader, deny("$mq9.AI.BROADCAST.system.>"));
    say(&mut driver, reader, "SUB $mq9.AI.BROADCAST.# 2\r\n");
    assert_eq!(payloads(&mut driver, reader), ["task.new", "task.old"]);
    store(&mut driver, sender, "system.down", "live");
    store(&mut driver, sender, "task.new", "live");
    assert_eq!(given(&mut driver, reader), ["2 BROADCAST.task.new live"]);
    say(&mut driver, reader, "SUB $mq9.AI.BROADCAST.system.down 3\r\n");
    let told = given(&mut driver, reader);
    assert!(told[0].contains("Subscription to \"$mq9.AI.BROADCAST.system.down\""), "{told:?}");
    // Whoever may not tell it may not have it stored.
    let publish_deny = vec!["$mq9.AI.BROADCAST.task.>".to_owned()];
    driver.permit(sender, PermissionsBuilder { publish_deny, ..Default::default() });
    store(&mut driver, sender, "task.new", "x");
    assert!(driver.wire(sender).contains("Publish to \"$mq9.AI.BROADCAST.task.new\""));
    assert_eq!(driver.wire(reader), "");
    // Permissions that end while it catches up count at once.
    let big = "x".repeat(200_000);
    for event in ["data.a", "data.b", "data.c", "data.d"] {
        store(&mut driver, sender, event, &big);
    }
    let _ = driver.wire(reader);
    let slow = driver.client();
    say(&mut driver, slow, "SUB $mq9.AI.BROADCAST.data.* 2\r\n");
    let first = given(&mut driver, slow);
    assert!((1..4).contains(&first.len()), "{} were written at once", first.len());
    driver.permit(slow, deny("$mq9.AI.BROADCAST.data.c"));
    settle(&mut driver);
    let mut rest = given(&mut driver, slow);
    settle(&mut driver);
    rest.extend(given(&mut driver, slow));
    let seen: Vec<&str> =
        first.iter().chain(&rest).map(|line| line.split(' ').nth(1).unwrap()).collect();
    assert_eq!(seen, ["BROADCAST.data.a", "BROADCAST.data.b", "BROADCAST.data.d"]);
}

#[test]
fn max_of_unsub_counts_what_was_told_before_too() {
    let mut driver = Driver::new();
    let (sender, reader) = (driver.client(), driver.client());
    for nth in 0..3 {
        store(&mut driver, sender, "a.b", &nth.to_string());
    }
    say(&mut driver, reader, "SUB $mq9.AI.BROADCAST.> 2\r\nUNSUB 2 2\r\n");
    say(&mut driver, reader, "SUB $mq9.AI.BROADCAST.> 3\r\nUNSUB 3 4\r\n");
    for nth in 3..6 {
        store(&mut driver, sender, "a.b", &nth.to_string());
    }
    let heard = given(&mut driver, reader);
    let of = |sid: &str| -> Vec<&str> {
        heard.iter().filter_map(|line| line.strip_prefix(sid)?.split(' ').nth(1)).collect()
    };
    assert_eq!(of("2 "), ["0", "1"]);
    assert_eq!(of("3 "), ["0", "1", "2", "3"]);
    assert_eq!(driver.engine.front().subscriptions_of(reader).count(), 1);
}

#[test]
fn a_slow_reader_catches_up_in_its_own_time_and_holds_nobody_up() {
    let mut driver = Driver::new();
    let (sender, slow, quick) = (driver.client(), driver.client(), driver.client());
    let filler = "x".repeat(1000);
    for nth in 0..2000 {
        driver.feed(sender, stored("a.b", "", "", &format!("{nth}{filler}")).as_bytes());
    }
    settle(&mut driver);
    say(&mut driver, slow, "SUB $mq9.AI.BROADCAST.> 2\r\n");
    settle(&mut driver);
    let mut seen = Vec::new();
    let mut live = Vec::new();
    say(&mut driver, quick, "SUB $mq9.AI.BROADCAST.> 2\r\n");
    for nth in 2000.. {
        let waiting = driver.engine.front().unwritten(slow).len();
        assert!(waiting < 400 << 10, "{waiting} bytes wait for a client that reads slowly");
        if nth < 2100 {
            store(&mut driver, sender, "a.b", &format!("{nth}{filler}"));
        }
        settle(&mut driver);
        live.extend(payloads(&mut driver, quick));
        if nth % 3 == 0 {
            seen.extend(payloads(&mut driver, slow));
        }
        if seen.len() == 2100 || nth > 5000 {
            break;
        }
    }
    let expected: Vec<String> = (0..2100).map(|nth| format!("{nth}{filler}")).collect();
    assert!(seen == expected, "{} of {}", seen.len(), expected.len());
    assert!(live == expected, "{} of {}", live.len(), expected.len());
    // Whoever has caught up is a listener like any other.
    store(&mut driver, sender, "a.b", "last");
    assert_eq!((payloads(&mut driver, slow), payloads(&mut driver, quick)).0, ["last"]);
}

#[test]
fn a_read_that_fails_is_tried_again() {
    let faults = Faults::new();
    let disk = Arc::new(FaultyDisk::new(SimDisk::new(), faults.clone()));
    let mut driver = Driver::on(disk).unwrap();
    let (sender, reader) = (driver.client(), driver.client());
    store(&mut driver, sender, "a.b", "1");
    // What is written last is in memory.
    driver.create("m", Policy::default());
    driver.settle();
    faults.fail(Operation::Read, Fault::io());
    say(&mut driver, reader, "SUB $mq9.AI.BROADCAST.> 2\r\n");
    assert_eq!(driver.wire(reader), "");
    assert!(faults.failures(Operation::Read) > 0);
    // What is told meanwhile comes behind it.
    store(&mut driver, sender, "a.b", "2");
    faults.clear();
    driver.pass_ms(250);
    assert_eq!(payloads(&mut driver, reader), ["1", "2"]);
}

#[test]
fn after_a_failed_sync_nobody_hears_it() {
    let faults = Faults::new();
    let disk = Arc::new(FaultyDisk::new(SimDisk::new(), faults.clone()));
    let mut driver = Driver::on(disk).unwrap();
    let (sender, live, later) = (driver.client(), driver.client(), driver.client());
    say(&mut driver, live, "SUB $mq9.AI.BROADCAST.> 2\r\n");
    store(&mut driver, sender, "a.b", "1");
    assert_eq!(payloads(&mut driver, live), ["1"]);
    faults.fail(Operation::Sync, Fault::io());
    let text = stored("a.b", &format!("in{sender}.x"), "", "2");
    driver.feed(sender, text.as_bytes());
    driver.release();
    assert!(driver.store().sync().is_err());
    driver.release();
    driver.release();
    let answer = driver.heard(sender).remove(0);
    assert!(answer.contains("writes stopped"), "{answer}");
    say_unsynced(&mut driver, later, "SUB $mq9.AI.BROADCAST.> 2\r\n");
    assert_eq!(driver.wire(live), "");
    assert_eq!(payloads(&mut driver, later), ["1"]);
}

fn say_unsynced(driver: &mut Driver, id: ConnId, text: &str) {
    driver.feed(id, text.as_bytes());
    driver.release();
}

/// A subscription of the model: what it should have been given of the stored broadcasts, and what it was.
struct Listener {
    conn: ConnId,
    pattern: &'static str,
    expected: Vec<String>,
    heard: Vec<String>,
}

impl Listener {
    fn take(&mut self, driver: &mut Driver) {
        self.heard.extend(payloads(driver, self.conn));
    }
}

#[test]
fn each_listener_hears_each_broadcast_once_and_in_order_however_things_fall() {
    let filler = "x".repeat(3000);
    let mut told = 0;
    for seed in 0..20 {
        let mut dice = Dice(seed);
        let disk = SimDisk::new();
        let mut driver = with(&disk, BroadcastLimits::default());
        let mut sender = driver.client();
        let mut stored_so_far: Vec<(&str, String)> = Vec::new();
        let mut listeners: Vec<Listener> = Vec::new();
        for step in 0..300 {
            match dice.below(12) {
                0..=5 => {
                    let event = ["a.b", "a.c", "d.b"][dice.below(3)];
                    let payload = format!("{seed}.{step}{filler}");
                    driver.feed(sender, stored(event, "", "", &payload).as_bytes());
                    stored_so_far.push((event, payload.clone()));
                    for listener in &mut listeners {
                        if hears(listener.pattern, event) {
                            listener.expected.push(payload.clone());
                        }
                    }
                }
                6 => {
                    let conn = driver.client();
                    let pattern = ["a.b", "a.*", "*.b", ">", "#"][dice.below(5)];
                    driver.feed(conn, format!("SUB $mq9.AI.BROADCAST.{pattern} 2\r\n").as_bytes());
                    let before = stored_so_far.iter().filter(|(event, _)| hears(pattern, event));
                    let expected = before.map(|(_, payload)| payload.clone()).collect();
                    listeners.push(Listener { conn, pattern, expected, heard: Vec::new() });
                }
                7 if !listeners.is_empty() => {
                    let nth = dice.below(listeners.len());
                    let mut gone = listeners.swap_remove(nth);
                    gone.take(&mut driver);
                    assert!(gone.expected.starts_with(&gone.heard), "seed {seed}");
                    driver.leave(gone.conn);
                }
                8 if dice.below(8) == 0 => {
                    settle(&mut driver);
                    drop(driver);
                    driver = with(&disk, BroadcastLimits::default());
                    sender = driver.client();
                    for listener in &mut listeners {
                        listener.conn = driver.client();
                        let pattern = listener.pattern;
                        let text = format!("SUB $mq9.AI.BROADCAST.{pattern} 2\r\n");
                        driver.feed(listener.conn, text.as_bytes());
                        let before =
                            stored_so_far.iter().filter(|(event, _)| hears(pattern, event));
                        listener.expected = before.map(|(_, payload)| payload.clone()).collect();
                        listener.heard.clear();
                    }
                }
                8 | 9 => driver.release(),
                10 => settle(&mut driver),
                _ => {
                    for listener in &mut listeners {
                        if dice.below(2) == 0 {
                            listener.take(&mut driver);
                        }
                    }
                }
            }
        }
        loop {
            settle(&mut driver);
            let before: usize = listeners.iter().map(|listener| listener.heard.len()).sum();
            for listener in &mut listeners {
                listener.take(&mut driver);
            }
            if before == listeners.iter().map(|listener| listener.heard.len()).sum::<usize>() {
                break;
            }
        }
        for listener in &listeners {
            let Listener { pattern, expected, heard, .. } = listener;
            assert!(
                expected == heard,
                "seed {seed}, {pattern}: {} of {}",
                heard.len(),
                expected.len()
            );
            told += heard.len();
        }
    }
    assert!(told > 5000, "only {told} were heard");
}

fn hears(pattern: &str, event: &str) -> bool {
    match pattern {
        "a.*" => event.starts_with("a."),
        "*.b" => event.ends_with(".b"),
        ">" | "#" => true,
        _ => event == pattern,
    }
}

/// A handler whose broadcasts are told when the test says so.
struct ByHand {
    handler: RequestHandler,
    store: Store,
}

impl Handler for ByHand {
    fn call(&mut self, _call: &Call<'_>) -> Handled {
        Handled::Unknown
    }

    fn broadcast(&mut self, call: &Call<'_>) -> Handled {
        self.handler.broadcast(&mut self.store, call, START)
    }

    fn catch_up(&mut self, cid: u64, subscription: SubId) -> u64 {
        self.handler.catch_up(&mut self.store, cid, subscription, START)
    }

    fn refuse(&mut self, _call: &Call<'_>, _kind: &'static str, _text: String) {}

    fn enforce(&mut self, _cid: u64, _rules: &Permissions) -> Vec<Vec<u8>> {
        Vec::new()
    }

    fn subscribe(&mut self, _wish: &Subscribing<'_>) -> Result<u64, Option<String>> {
        Err(None)
    }

    fn may_feed(&mut self, _reader: u64, _rules: Option<&Permissions>) -> bool {
        true
    }

    fn has_room(&self, _cid: u64, _most: usize) -> bool {
        true
    }
}

impl ByHand {
    fn store(&mut self, payload: &[u8]) {
        let headers = b"NATS/1.0\r\nmq9-persist: true\r\n\r\n";
        let (subject, reply) = (&b"$mq9.AI.BROADCAST.a.b"[..], &b""[..]);
        let call = Call { cid: 1, subject, reply, headers, payload };
        assert_eq!(self.broadcast(&call), Handled::Done);
        self.store.sync().unwrap();
    }

    fn tell(&mut self, front: &mut Front) {
        let told = self.handler.next_broadcast(self.store.acknowledged()).unwrap();
        front.tell(told.cid, &told.subject, told.headers, &told.body);
    }
}

#[test]
fn what_is_durable_and_not_told_yet_is_not_given_either() {
    let store = Store::open(Arc::new(SimDisk::new()), Options::default(), 42, START).unwrap();
    let handler = RequestHandler::new(WireOptions::default());
    let mut by_hand = ByHand { handler, store };
    let mut front = Front::new(Limits::default(), 1, 0);
    let reader = front.open(2, false, 0);
    by_hand.store(b"1");
    by_hand.tell(&mut front);
    by_hand.store(b"2");
    front.feed(reader, b"SUB $mq9.AI.BROADCAST.> 7\r\n", &mut by_hand, 0);
    let ByHand { handler, store } = &mut by_hand;
    assert!(!handler.go_on(store, &mut front, START));
    let wire = |front: &Front| String::from_utf8_lossy(front.unwritten(reader)).into_owned();
    assert_eq!(wire(&front), "+OK\r\nMSG $mq9.AI.BROADCAST.a.b 7 1\r\n1\r\n");
    front.written(reader, usize::MAX);
    by_hand.tell(&mut front);
    assert_eq!(wire(&front), "MSG $mq9.AI.BROADCAST.a.b 7 1\r\n2\r\n");
}
