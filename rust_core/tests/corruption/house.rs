//! Builds the stores that are damaged: small, but with every kind of record in their logs.

use std::sync::Arc;

use mq9_core::disk::Disk;
use mq9_core::log::SyncMode;
use mq9_core::mailbox::{Level, Policy, Tier};
use mq9_core::store::{
    Ack, AckKind, Fetch, FetchOutcome, GroupFetch, MemberId, NewMailbox, Options, Send, Start,
    Store,
};
use mq9_core::time::Now;
use mq9_sim::SimDisk;

/// When the script begins.
pub const START: Now = Now { wall_ms: 1_700_000_000_000, mono_ms: 5_000 };
/// When the damaged store is looked at: delayed messages are due, nothing has expired.
pub const LATE: Now =
    Now { wall_ms: START.wall_ms + 1_200_000, mono_ms: START.mono_ms + 1_200_000 };

pub fn at(ms: u64) -> Now {
    Now { wall_ms: START.wall_ms + ms, mono_ms: START.mono_ms + ms }
}

pub fn options() -> Options {
    Options { sync: SyncMode::None, ..Options::default() }
}

pub fn open(disk: &SimDisk, now: Now) -> Store {
    Store::open(Arc::new(disk.clone()), options(), 0x5eed, now).unwrap()
}

/// How a store was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// Killed, with nothing but a log.
    Killed,
    /// Closed in order, with a checkpoint.
    Closed,
    /// Killed, with two checkpoints and several segments.
    Checkpointed,
    /// Closed in order, with two checkpoints and several segments.
    ClosedLater,
}

impl Left {
    pub const ALL: [Left; 4] = [Left::Killed, Left::Closed, Left::Checkpointed, Left::ClosedLater];

    pub fn is_killed(self) -> bool {
        matches!(self, Left::Killed | Left::Checkpointed)
    }

    /// The files, without most of the reserved space after the last record.
    pub fn disk(self) -> SimDisk {
        let disk = SimDisk::new();
        let mut store = open(&disk, START);
        let more_segments = matches!(self, Left::Checkpointed | Left::ClosedLater);
        for (step, part) in [first, second, third, fourth].into_iter().enumerate() {
            part(&mut store);
            if more_segments && step < 3 {
                store.rotate(at(step as u64)).unwrap();
            }
            if more_segments && step < 2 {
                store.checkpoint().unwrap();
            }
            if more_segments && step == 1 {
                store.flush().unwrap();
                drop(store);
                store = open(&disk, at(1_600));
            }
        }
        match self {
            Left::Closed | Left::ClosedLater => store.close().unwrap(),
            Left::Killed | Left::Checkpointed => {
                store.flush().unwrap();
                drop(store);
            }
        }
        trimmed(&disk)
    }
}

/// A copy with a few zeros after the last record of each file.
pub fn trimmed(disk: &SimDisk) -> SimDisk {
    let copy = disk.snapshot();
    for name in copy.names() {
        let bytes = copy.read_file(&name).unwrap();
        let used = bytes.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1);
        copy.open(&name).unwrap().set_len(bytes.len().min(used + 64) as u64).unwrap();
    }
    copy
}

fn create(store: &mut Store, address: &str, desc: &str, ttl_ms: u64, policy: Policy) {
    store.create_mailbox(&NewMailbox { address, desc, ttl_ms, policy }, START).unwrap();
}

fn fetch(store: &mut Store, address: &str, group: &str, max_msgs: usize, now: Now) -> Vec<u64> {
    let member = MemberId::Named("worker".to_owned());
    let group = Some(GroupFetch { name: group.to_owned(), member, force: false });
    let request = Fetch { group, max_msgs, ..Fetch::all(address) };
    let FetchOutcome::Messages(batch) = store.fetch(request, now).unwrap() else { panic!() };
    batch.iter().map(|(meta, _)| meta.msg_id).collect()
}

fn ack(store: &mut Store, address: &str, group: &str, msg_id: u64, kind: AckKind, now: Now) {
    store.ack(&Ack { address, group, msg_ids: &[msg_id], kind }, now).unwrap();
}

const ONLY: AckKind = AckKind::Done { only: true };

/// Three mailboxes of different kinds, and a group that was there before any message.
fn first(store: &mut Store) {
    create(store, "orders", "what was ordered", 0, Policy::default());
    let work = Policy { work_queue: true, max_msgs: 3, ..Policy::default() };
    create(store, "work.queue", "", 86_400_000, work);
    let dead_letter = Some("dead".into());
    let careful = Policy { max_deliver: 1, dead_letter, public: true, ..Policy::default() };
    create(store, "careful", "", 0, careful);
    let early = Fetch { start: Start::Latest, ..Fetch::group("orders", "early", 1) };
    store.fetch(early, at(1)).unwrap();
    let headers = b"Content-Type: text/plain\r\n";
    let full = Send { tags: "red,blue", headers, ..Send::new(b"order zero") };
    store.send("orders", &full, at(2)).unwrap();
    let keyed = Send { key: "k1", level: Level::CRITICAL, ..Send::new(b"first of its key") };
    store.send("orders", &keyed, at(3)).unwrap();
    store.send("orders", &Send { ttl_ms: 3_600_000, ..Send::new(b"expires") }, at(4)).unwrap();
    store.send("orders", &Send { delay_ms: 1_000, ..Send::new(b"delayed") }, at(5)).unwrap();
    store.send("orders", &Send { delay_ms: 600_000, ..Send::new(b"later") }, at(6)).unwrap();
}

/// Deliveries and what may become of them.
fn second(store: &mut Store) {
    store.send("orders", &Send { key: "k1", ..Send::new(b"second of its key") }, at(10)).unwrap();
    assert_eq!(fetch(store, "orders", "g", 2, at(11)), [0, 2]);
    ack(store, "orders", "g", 0, ONLY, at(12));
    ack(store, "orders", "g", 2, AckKind::Return { delay_ms: 0 }, at(13));
    assert_eq!(fetch(store, "orders", "early", 1, at(14)), [0]);
    for payload in [b"w0", b"w1", b"w2", b"w3"] {
        store.send("work.queue", &Send::new(payload), at(20)).unwrap();
    }
    assert_eq!(fetch(store, "work.queue", "w", 2, at(21)), [1, 2]);
    ack(store, "work.queue", "w", 1, ONLY, at(22));
    // The delayed message enters its lane.
    store.tick(at(1_500));
}

/// A dead letter, a removed mailbox, one in memory.
fn third(store: &mut Store) {
    store.send("careful", &Send::new(b"poison"), at(1_601)).unwrap();
    store.send("careful", &Send::new(b"fine"), at(1_602)).unwrap();
    assert_eq!(fetch(store, "careful", "c", 1, at(1_603)), [0]);
    ack(store, "careful", "c", 0, AckKind::Terminate, at(1_604));
    create(store, "gone", "", 0, Policy::default());
    store.send("gone", &Send::new(b"went with its mailbox"), at(1_605)).unwrap();
    store.remove_mailbox("gone", at(1_606)).unwrap();
    create(store, "memory", "", 0, Policy { tier: Tier::Memory, ..Policy::default() });
    store.send("memory", &Send::new(b"not on disk"), at(1_607)).unwrap();
}

/// Later deliveries of the same groups, a deletion, and a unit of two records at the very end.
fn fourth(store: &mut Store) {
    store.send("orders", &Send { level: Level::URGENT, ..Send::new(b"last") }, at(1_700)).unwrap();
    assert_eq!(fetch(store, "orders", "g", 2, at(1_701)).len(), 2);
    assert_eq!(fetch(store, "orders", "early", 2, at(1_702)).len(), 2);
    store.delete("orders", 0, at(1_703)).unwrap();
    store.send("work.queue", &Send::new(b"w4"), at(1_704)).unwrap();
    store.send("work.queue", &Send::new(b"w5"), at(1_705)).unwrap();
}
