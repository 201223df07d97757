//! Single crashes made by hand, each for one way in which something could be lost.

use std::sync::Arc;

use mq9_core::disk::Disk;
use mq9_core::error::Error;
use mq9_core::log::FIRST_RECORD;
use mq9_core::mailbox::Policy;
use mq9_core::store::{
    Ack, AckKind, DamageKind, Fetch, FetchOutcome, GroupFetch, MemberId, NewMailbox, Options,
    Quotas, Send, Start, Store,
};
use mq9_core::time::Now;
use mq9_sim::SimDisk;

use crate::world::{OPTIONS, START, everything, fetch, open};

fn opened(disk: &SimDisk) -> Store {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    open(&disk, OPTIONS, START).unwrap()
}

fn created(disk: &SimDisk) -> Store {
    let mut store = opened(disk);
    store.create_mailbox(&NewMailbox { address: "a", ..NewMailbox::default() }, START).unwrap();
    store
}

fn send(store: &mut Store, payload: &str) -> u64 {
    store.send("a", &Send::new(payload.as_bytes()), START).unwrap().unwrap()
}

fn fetched(store: &mut Store, max: usize) -> Vec<String> {
    let batch = fetch(store, "a", "g", "m", max, START).unwrap();
    batch.iter().map(|(_, m)| String::from_utf8_lossy(m.payload).into_owned()).collect()
}

fn stored(store: &mut Store) -> Vec<String> {
    let batch = everything(store, "a", START).unwrap();
    batch.iter().map(|(_, m)| String::from_utf8_lossy(m.payload).into_owned()).collect()
}

/// Loses the sectors with `payload`, as a power cut may that comes before a sync.
fn lose(disk: &SimDisk, payload: &str) {
    for name in disk.names() {
        let mut bytes = disk.read_file(&name).unwrap();
        let found = bytes.windows(payload.len()).position(|w| w == payload.as_bytes());
        if let Some(at) = found {
            bytes[at..at + payload.len()].fill(0);
            disk.write_file(&name, &bytes);
            return;
        }
    }
    panic!("{payload} is nowhere");
}

/// Message and id stand or fall together: sent again, it is there once.
#[test]
fn a_power_cut_in_a_send_with_an_id_keeps_both_or_none() {
    let first = Send { key: "k", ..Send::new(b"first") };
    let mut seen = (false, false);
    for delay_ms in [0, 60_000] {
        let once = Send { delay_ms, ..Send::new(b"once") };
        for cut in 1.. {
            let disk = SimDisk::new();
            let mut store = created(&disk);
            store.send("a", &first, START).unwrap();
            store.sync().unwrap();
            let before = disk.ops();
            disk.cut_at(before + cut);
            let sent = store.send_once("a", "id", &once, START).and_then(|_| store.sync());
            if !disk.is_cut() {
                break;
            }
            drop(store);
            for crashed in [disk.crash_strict(), disk.crash_lucky(), disk.crash(cut)] {
                let mut store = opened(&crashed);
                let again = store.send_once("a", "id", &once, START).unwrap();
                let info = store.mailbox("a", START).unwrap();
                assert_eq!(info.messages + info.delayed, 2, "cut at {cut}: {again:?}");
                assert!(sent.is_err() || again.duplicate, "cut at {cut}: it was promised");
                match again.duplicate {
                    true => seen.1 = true,
                    false => seen.0 = true,
                }
            }
        }
    }
    assert_eq!(seen, (true, true), "the cuts came too early or too late");
}

/// All of the mailbox, or nothing of it.
#[test]
fn a_power_cut_in_a_purge_leaves_all_messages_or_none() {
    let purge = |disk: &SimDisk, cut: u64| -> Option<bool> {
        let mut store = created(disk);
        for n in 0..40 {
            send(&mut store, &format!("{n} {}", "x".repeat(200)));
        }
        let later = Send { delay_ms: 60_000, ..Send::new(b"later") };
        store.send("a", &later, START).unwrap();
        store.sync().unwrap();
        fetched(&mut store, 30);
        store.sync().unwrap();
        let before = disk.ops();
        disk.cut_at(before + cut);
        let purged = store.purge("a", START).and_then(|_| store.sync());
        (disk.ops() > before + cut || disk.is_cut()).then_some(purged.is_ok())
    };
    let mut seen = (false, false);
    for cut in 1.. {
        let disk = SimDisk::new();
        let Some(acknowledged) = purge(&disk, cut) else { break };
        let crashes =
            [disk.crash_strict(), disk.crash_lucky(), disk.crash(cut), disk.crash(cut + 99)];
        for crashed in crashes {
            let mut store = opened(&crashed);
            let info = store.mailbox("a", START).unwrap();
            let left = (info.messages, info.delayed, info.groups[0].outstanding, info.next_id);
            assert!([(40, 1, 30, 40), (0, 0, 0, 40)].contains(&left), "cut at {cut}: {left:?}");
            assert!(!acknowledged || left.0 == 0, "cut at {cut}: it was promised");
            match left.0 {
                0 => seen.1 = true,
                _ => seen.0 = true,
            }
        }
    }
    assert_eq!(seen, (true, true), "the cuts came too early or too late");
}

/// A dead letter that goes back is in one of both mailboxes: never in both, and never in none.
#[test]
fn a_power_cut_in_a_replay_leaves_the_letter_or_the_message() {
    let mut seen = (false, false);
    for policy in [
        Policy::default(),
        Policy { max_msgs: 1, ..Policy::default() },
        Policy { latest: true, ..Policy::default() },
    ] {
        for cut in 1.. {
            let disk = SimDisk::new();
            let mut store = opened(&disk);
            let source =
                NewMailbox { address: "source", policy: policy.clone(), ..NewMailbox::default() };
            store.create_mailbox(&source, START).unwrap();
            store.send("source", &Send::new(b"before"), START).unwrap();
            store
                .create_mailbox(&NewMailbox { address: "a", ..NewMailbox::default() }, START)
                .unwrap();
            send(&mut store, "another");
            let letter = send(&mut store, "letter");
            store.sync().unwrap();
            let before = disk.ops();
            disk.cut_at(before + cut);
            let sent = store
                .send_back("a", letter, "source", &Send::new(b"letter"), START)
                .and_then(|_| store.sync());
            if !disk.is_cut() {
                break;
            }
            drop(store);
            for crashed in [disk.crash_strict(), disk.crash_lucky(), disk.crash(cut)] {
                let mut store = opened(&crashed);
                let here = stored(&mut store);
                let batch = everything(&mut store, "source", START).unwrap();
                let there = batch.iter().filter(|(_, m)| m.payload == b"letter").count();
                let went_back = match (here.len(), there) {
                    (2, 0) => false,
                    (1, 1) => true,
                    both => panic!("cut at {cut}: {both:?}"),
                };
                assert_eq!(here[0], "another");
                assert!(sent.is_err() || went_back, "cut at {cut}: it was promised");
                match went_back {
                    true => seen.1 = true,
                    false => seen.0 = true,
                }
            }
        }
    }
    assert_eq!(seen, (true, true), "the cuts came too early or too late");
}

/// Whether a power cut loses the last record with a payload, or the one behind it.
#[derive(Debug, Clone, Copy)]
enum Part {
    First,
    Second,
}

fn lose_part(disk: &SimDisk, payload: &str, part: Part) {
    let name = "segment-0000000001.log";
    let mut bytes = disk.read_file(name).unwrap();
    let at = bytes.windows(payload.len()).rposition(|w| w == payload.as_bytes()).unwrap();
    match part {
        Part::First => bytes[at..at + payload.len()].fill(0),
        Part::Second => bytes[at + payload.len()..][..20].fill(0),
    }
    disk.write_file(name, &bytes);
}

#[test]
fn a_delayed_message_comes_once_whatever_a_power_cut_loses_of_its_publication() {
    for part in [Part::First, Part::Second] {
        let disk = SimDisk::new();
        let mut store = created(&disk);
        let delayed = Send { delay_ms: 10, ..Send::new(b"delayed") };
        store.send("a", &delayed, START).unwrap();
        let due = Now { wall_ms: START.wall_ms + 10, ..START };
        store.tick(due);
        store.send("a", &Send::new(b"behind"), due).unwrap();
        store.flush().unwrap();
        drop(store);
        lose_part(&disk, "delayed", part);

        let mut store = opened(&disk);
        store.tick(due);
        let mut found = stored(&mut store);
        found.sort();
        assert_eq!(found, ["behind", "delayed"], "{part:?}");
    }
}

#[test]
fn a_mailbox_is_its_owners_after_a_power_cut() {
    let disk = SimDisk::new();
    let quotas = Quotas { max_mailboxes_per_user: 2, ..Quotas::DEFAULT };
    let open = |disk: &SimDisk| {
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        Store::open(shared, Options { quotas, ..OPTIONS }, 42, START).unwrap()
    };
    let create = |store: &mut Store, address: &str, owner: &str| {
        let policy = Policy { owner: Some(owner.into()), ..Policy::default() };
        store.create_mailbox(&NewMailbox { address, policy, ..NewMailbox::default() }, START)
    };
    let mut store = open(&disk);
    create(&mut store, "a", "ada").unwrap();
    store.sync().unwrap();
    // From the log first, then from a checkpoint.
    for (address, checkpoint) in [("b", false), ("c", true)] {
        if checkpoint {
            store.checkpoint().unwrap();
            store.remove_mailbox("b", START).unwrap();
        }
        create(&mut store, address, "ada").unwrap();
        store.sync().unwrap();
        let mut cut = open(&disk.crash_strict());
        for address in ["a", address] {
            let policy = cut.mailbox(address, START).unwrap().policy;
            assert_eq!(policy.owner.as_deref(), Some("ada"));
        }
        let refused = create(&mut cut, "more", "ada");
        assert!(matches!(refused, Err(Error::QuotaExceeded { .. })), "{refused:?}");
        create(&mut cut, "more", "bob").unwrap();
    }
}

#[test]
fn a_message_dies_once_whatever_a_power_cut_loses_of_its_burial() {
    for part in [Part::First, Part::Second] {
        let disk = SimDisk::new();
        let mut store = opened(&disk);
        let policy = Policy { dead_letter: Some("dead".into()), ..Policy::default() };
        let new = NewMailbox { address: "a", policy, ..NewMailbox::default() };
        store.create_mailbox(&new, START).unwrap();
        let id = send(&mut store, "poison");
        assert_eq!(fetched(&mut store, 9), ["poison"]);
        let terminate = |store: &mut Store| {
            let kind = AckKind::Terminate;
            store.ack(&Ack { address: "a", group: "g", msg_ids: &[id], kind }, START).unwrap();
        };
        terminate(&mut store);
        send(&mut store, "behind");
        store.flush().unwrap();
        drop(store);
        lose_part(&disk, "poison", part);

        let mut store = opened(&disk);
        assert_eq!(everything(&mut store, "dead", START).unwrap().len(), 0, "{part:?}");
        assert_eq!(fetched(&mut store, 9), ["poison", "behind"], "{part:?}");
        terminate(&mut store);
        assert_eq!(everything(&mut store, "dead", START).unwrap().len(), 1, "{part:?}");
    }
}

#[test]
fn a_delivery_that_outlives_its_message_hides_no_later_message() {
    let disk = SimDisk::new();
    let mut store = created(&disk);
    send(&mut store, "first");
    let lost = send(&mut store, "second");
    assert_eq!(fetched(&mut store, 9), ["first", "second"]);
    store.flush().unwrap();
    drop(store);
    lose(&disk, "second");

    let mut store = opened(&disk);
    assert!(send(&mut store, "third") > lost);
    assert_eq!(fetched(&mut store, 9), ["first", "third"]);
}

#[test]
fn a_group_pinned_at_the_end_misses_nothing_when_the_messages_before_it_are_lost() {
    let disk = SimDisk::new();
    let mut store = created(&disk);
    let lost = send(&mut store, "before");
    let group = GroupFetch { name: "g".to_owned(), member: MemberId::Conn, force: true };
    let request = Fetch { group: Some(group), start: Start::Latest, ..Fetch::all("a") };
    let outcome = store.fetch(request, START).unwrap();
    assert!(matches!(outcome, FetchOutcome::Messages(batch) if batch.is_empty()));
    store.flush().unwrap();
    drop(store);
    lose(&disk, "before");

    let mut store = opened(&disk);
    assert!(send(&mut store, "after") > lost);
    assert_eq!(fetched(&mut store, 9), ["after"]);
}

#[test]
fn a_deletion_that_outlives_its_message_keeps_the_id_from_being_used_again() {
    let disk = SimDisk::new();
    let mut store = created(&disk);
    let lost = send(&mut store, "deleted");
    store.delete("a", lost, START).unwrap();
    store.flush().unwrap();
    drop(store);
    lose(&disk, "deleted");
    assert!(send(&mut opened(&disk), "next") > lost);
}

/// Fills segments, deletes most of what is in them, and lets upkeep remove them.
fn with_removed_segments(disk: &SimDisk) -> Vec<String> {
    let mut store = created(disk);
    let mut kept = Vec::new();
    for round in 0..12 {
        let ids: Vec<u64> =
            (0..8).map(|n| send(&mut store, &format!("{round}-{n}-{:300}", ""))).collect();
        for &id in &ids[1..] {
            store.delete("a", id, START).unwrap();
        }
        kept.push(format!("{round}-0-{:300}", ""));
        store.sync().unwrap();
        let shared = std::cell::RefCell::new(store);
        while mq9_core::store::maintain(&shared, || START).unwrap() {}
        store = shared.into_inner();
    }
    assert_eq!(stored(&mut store), kept);
    drop(store);
    assert!(!disk.names().contains(&"segment-0000000001.log".to_owned()));
    kept
}

fn checkpoints(disk: &SimDisk) -> Vec<String> {
    disk.names().into_iter().filter(|name| name.starts_with("checkpoint")).collect()
}

#[test]
fn the_older_checkpoint_and_the_log_from_its_start_suffice() {
    let disk = SimDisk::new();
    let kept = with_removed_segments(&disk);
    let names = checkpoints(&disk);
    assert_eq!(names.len(), 2, "{names:?}");
    for damage in [0, 1, 2] {
        let disk = disk.snapshot();
        let mut bytes = disk.read_file(&names[1]).unwrap();
        match damage {
            0 => bytes.truncate(bytes.len() / 2),
            1 => {
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
            }
            _ => bytes.clear(),
        }
        disk.write_file(&names[1], &bytes);
        let mut store = opened(&disk);
        assert!(store.damage().iter().all(|d| d.kind == DamageKind::Checkpoint));
        assert_eq!(store.damage().len(), 1);
        assert_eq!(stored(&mut store), kept);
        // And again, with the upkeep that follows.
        store.close().unwrap();
        let shared = std::cell::RefCell::new(opened(&disk));
        while mq9_core::store::maintain(&shared, || START).unwrap() {}
        assert_eq!(stored(&mut shared.into_inner()), kept);
    }
}

#[test]
fn what_only_memory_knows_of_is_acknowledged_once_everything_is_durable() {
    let disk = SimDisk::new();
    let mut store = created(&disk);
    send(&mut store, "one");
    store.sync().unwrap();
    assert!(store.acknowledged() >= store.end());
    // A new segment moves the end without a record: nobody may wait for it for ever.
    store.rotate(START).unwrap();
    store.sync().unwrap();
    assert!(store.acknowledged() >= store.end());
}

#[test]
fn a_torn_tail_is_set_aside_whole_though_an_earlier_try_was_cut_short() {
    let disk = SimDisk::new();
    let mut store = created(&disk);
    send(&mut store, "sound");
    store.sync().unwrap();
    let end = u64::from(store.end().offset());
    drop(store);
    let name = "segment-0000000001.log";
    let mut bytes = disk.read_file(name).unwrap();
    bytes.truncate(end as usize);
    bytes.extend_from_slice(b"torn bytes");
    disk.write_file(name, &bytes);
    let aside = format!("damaged-{name}-at-{end}");
    disk.write_file(&aside, b"to");

    drop(opened(&disk));
    assert_eq!(disk.crash_strict().read_file(&aside).unwrap(), b"torn bytes");
    assert!(end > u64::from(FIRST_RECORD));
}

#[test]
fn the_set_aside_copy_is_durable_before_the_tail_goes() {
    let disk = SimDisk::new();
    let mut store = created(&disk);
    store.sync().unwrap();
    drop(store);
    let name = "segment-0000000001.log";
    let mut bytes = disk.read_file(name).unwrap();
    let used = bytes.iter().rposition(|&byte| byte != 0).unwrap() + 1;
    bytes.truncate(used);
    bytes.extend_from_slice(b"torn bytes");
    disk.write_file(name, &bytes);
    let torn = |disk: &SimDisk| {
        disk.names().iter().any(|name| disk.read_file(name).unwrap().ends_with(b"torn bytes"))
    };
    let trial = disk.snapshot();
    drop(opened(&trial));
    for n in 1..=trial.ops() {
        let disk = disk.snapshot();
        disk.cut_at(n);
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        assert!(open(&shared, OPTIONS, START).is_err());
        for seed in 0..20 {
            assert!(torn(&disk.crash(seed)), "cut at {n}, seed {seed}");
        }
    }
}
