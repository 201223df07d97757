//! Changing a mailbox: what is named changes, for good, and lowered limits hold for what is there.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use mq9_core::disk::Disk;
use mq9_core::error::Error;
use mq9_core::mailbox::{Discard, Policy, Tier};
use mq9_core::store::{
    Ack, AckKind, Changes, Fetch, FetchOutcome, NewMailbox, Options, Query, Send, Store,
};
use mq9_core::time::Now;
use mq9_sim::SimDisk;

const START: Now = Now { wall_ms: 1_700_000_000_000, mono_ms: 5_000 };
const NOTHING: Changes<'static> = Changes { ttl_ms: None, desc: None };

fn at(ms: u64) -> Now {
    Now { wall_ms: START.wall_ms + ms, mono_ms: START.mono_ms + ms }
}

fn open(disk: &SimDisk, now: Now) -> Store {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let options = Options { segment_bytes: 64 << 10, ..Options::default() };
    Store::open(disk, options, 42, now).unwrap()
}

fn create(store: &mut Store, address: &str, policy: Policy) {
    let new = NewMailbox { address, desc: "old", policy, ..NewMailbox::default() };
    store.create_mailbox(&new, START).unwrap();
}

fn created(disk: &SimDisk, policy: Policy) -> Store {
    let mut store = open(disk, START);
    create(&mut store, "a", policy);
    store
}

fn send(store: &mut Store, count: usize) {
    for _ in 0..count {
        store.send("a", &Send::new(b"one of many"), at(1)).unwrap();
    }
}

fn ids(store: &mut Store, now: Now) -> Vec<u64> {
    let query = Query { limit: 100_000, max_bytes: u64::MAX, ..Query::default() };
    store.query("a", &query, now).unwrap().iter().map(|(meta, _)| meta.msg_id).collect()
}

fn count(store: &mut Store, now: Now) -> u64 {
    store.mailbox("a", now).unwrap().messages
}

fn fetch(store: &mut Store, now: Now) -> Vec<u64> {
    let FetchOutcome::Messages(batch) = store.fetch(Fetch::group("a", "g", 10), now).unwrap()
    else {
        panic!("did not ask to wait")
    };
    batch.iter().map(|(meta, _)| meta.msg_id).collect()
}

/// Does all that is due at once, and counts the steps.
fn settle(store: &mut Store, now: Now) -> usize {
    let mut ticks = 0;
    while store.tick(now) || store.sleep_ms(now) == Some(0) {
        ticks += 1;
        assert!(ticks < 1_000, "it never ends");
    }
    ticks
}

#[test]
fn what_is_not_named_stays_with_and_without_a_checkpoint() {
    for checkpoint in [false, true] {
        let disk = SimDisk::new();
        let before = Policy { max_msgs: 9, ack_wait_ms: 7, public: true, ..Policy::default() };
        let mut store = created(&disk, before.clone());
        send(&mut store, 2);
        let changes = Changes { ttl_ms: Some(60_000), desc: Some("new") };
        store.update_mailbox("a", changes, |policy| policy.max_msgs = 5, at(2)).unwrap();
        if checkpoint {
            store.checkpoint().unwrap();
        }
        store.sync().unwrap();
        drop(store);
        let store = &mut open(&disk, at(3));
        let info = store.mailbox("a", at(3)).unwrap();
        assert_eq!(info.policy, Policy { max_msgs: 5, ..before });
        assert_eq!((&*info.desc, info.expires_ms), ("new", START.wall_ms + 60_000));
        assert_eq!((info.messages, info.next_id, info.created_ms), (2, 2, START.wall_ms));
        store.tick(at(59_999));
        assert!(store.mailbox("a", at(59_999)).is_ok());
        store.tick(at(60_000));
        assert!(matches!(store.mailbox("a", at(60_000)), Err(Error::MailboxNotFound(_))));
    }
}

#[test]
fn a_life_that_was_made_longer_or_endless_does_not_end_before() {
    for (ttl_ms, end) in [(0, None), (90_000, Some(90_000)), (9_000, Some(9_000))] {
        let mut store = open(&SimDisk::new(), START);
        let new = NewMailbox { address: "a", ttl_ms: 30_000, ..NewMailbox::default() };
        store.create_mailbox(&new, START).unwrap();
        let longer = Changes { ttl_ms: Some(ttl_ms), desc: None };
        store.update_mailbox("a", longer, |_| (), at(5_000)).unwrap();
        let last = end.map_or(99_000, |end| end - 1);
        settle(&mut store, at(last));
        assert!(store.mailbox("a", at(last)).is_ok());
        settle(&mut store, at(99_999));
        assert_eq!(store.info().mailboxes, u64::from(end.is_none()));
    }
}

#[test]
fn a_refused_change_changes_nothing() {
    let disk = SimDisk::new();
    let to = |address: &str| Policy { dead_letter: Some(address.into()), ..Policy::default() };
    let mut store = created(&disk, Policy::default());
    create(&mut store, "b", to("a"));
    create(&mut store, "c", to("b"));
    let end = store.end();
    let mut refuse = |changes: Changes<'_>, change: fn(&mut Policy)| match store.update_mailbox(
        "a",
        changes,
        change,
        at(1_000),
    ) {
        Err(Error::InvalidField { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    let over = Changes { ttl_ms: Some(1_000), ..NOTHING };
    assert_eq!(refuse(over, |_| ()), "ttl");
    let long = "x".repeat(4097);
    assert_eq!(refuse(Changes { desc: Some(&long), ..NOTHING }, |_| ()), "desc");
    assert_eq!(refuse(NOTHING, |policy| policy.max_deliver = 1), "max_deliver");
    for circle in [(|p| p.dead_letter = Some("a".into())) as fn(&mut Policy), |p| {
        p.dead_letter = Some("c".into());
    }] {
        assert_eq!(refuse(NOTHING, circle), "dead_letter");
    }
    store.update_mailbox("a", NOTHING, |policy| policy.tier = Tier::Memory, at(1_000)).unwrap();
    assert_eq!(store.end(), end, "nothing was written");
    let info = store.mailbox("a", at(1_000)).unwrap();
    assert_eq!((info.policy, &*info.desc, info.expires_ms), (Policy::default(), "old", 0));
    let missing = store.update_mailbox("x", NOTHING, |_| (), at(1_000));
    assert!(matches!(missing, Err(Error::MailboxNotFound(_))));
}

#[test]
fn a_chain_of_dead_letters_has_an_end() {
    let disk = SimDisk::new();
    let mut store = created(&disk, Policy::default());
    let mut last = "a".to_owned();
    let mut refused = 0;
    for n in 0..110 {
        let policy = Policy { dead_letter: Some(last.as_str().into()), ..Policy::default() };
        let address = format!("m{n}");
        let new = NewMailbox { address: &address, policy, ..NewMailbox::default() };
        match store.create_mailbox(&new, START) {
            Ok(()) => last = address,
            Err(Error::InvalidField { field: "dead_letter", .. }) => refused += 1,
            Err(e) => panic!("{e}"),
        }
    }
    assert_eq!(refused, 10);
}

#[test]
fn messages_over_a_lowered_limit_go_oldest_first_a_little_at_a_time() {
    let changes: [fn(&mut Policy); 3] =
        [|p| p.max_msgs = 3, |p| p.max_bytes = 250, |p| p.latest = true];
    for (change, left) in changes.into_iter().zip([3, 3, 1]) {
        for tier in [Tier::Durable, Tier::Memory] {
            let disk = SimDisk::new();
            let mut store = created(&disk, Policy { tier, ..Policy::default() });
            send(&mut store, 5_000);
            store.update_mailbox("a", NOTHING, change, at(2)).unwrap();
            // To look is a step of its own.
            assert_eq!(count(&mut store, at(2)), 5_000 - 2 * 256);
            let ticks = settle(&mut store, at(3));
            assert!((10..40).contains(&ticks), "{ticks}");
            assert_eq!(ids(&mut store, at(3)), (5_000 - left..5_000).collect::<Vec<_>>());
            assert!(store.info().live_bytes < 300);
        }
    }
}

#[test]
fn a_send_does_not_wait_for_all_surplus_to_go() {
    for (change, left) in
        [(|p: &mut Policy| p.max_msgs = 3) as fn(&mut Policy), |p| p.latest = true]
            .into_iter()
            .zip([3, 1])
    {
        let disk = SimDisk::new();
        let mut store = created(&disk, Policy::default());
        send(&mut store, 5_000);
        store.update_mailbox("a", NOTHING, change, at(1)).unwrap();
        let before = count(&mut store, at(1));
        store.send("a", &Send::new(b"new"), at(1)).unwrap();
        // What is due goes as well.
        assert!((before - 1100..before).contains(&count(&mut store, at(1))));
        settle(&mut store, at(2));
        assert_eq!(ids(&mut store, at(2)), (5_001 - left..5_001).collect::<Vec<_>>());
    }
}

#[test]
fn a_message_that_never_fits_is_refused_and_takes_nothing_along() {
    let disk = SimDisk::new();
    let mut store = created(&disk, Policy::default());
    send(&mut store, 2_000);
    store.update_mailbox("a", NOTHING, |policy| policy.max_bytes = 250, at(1)).unwrap();
    let large = [7; 300];
    // While more is there than may be, and afterwards.
    for _ in 0..2 {
        let before = ids(&mut store, at(1));
        let refused = store.send("a", &Send::new(&large), at(1)).unwrap_err().to_string();
        assert_eq!(refused, "mailbox a is full: max_bytes 250");
        assert!(before.ends_with(&ids(&mut store, at(1))));
        settle(&mut store, at(1));
        assert_eq!(ids(&mut store, at(1)), [1_997, 1_998, 1_999]);
    }
}

#[test]
fn surplus_goes_on_going_after_a_crash_and_with_the_next_message_after_a_checkpoint() {
    for checkpoint in [false, true] {
        let disk = SimDisk::new();
        let mut store = created(&disk, Policy::default());
        send(&mut store, 2_000);
        store.update_mailbox("a", NOTHING, |policy| policy.max_msgs = 3, at(2)).unwrap();
        if checkpoint {
            store.checkpoint().unwrap();
        }
        store.sync().unwrap();
        drop(store);
        let mut store = open(&disk, at(3));
        assert!((1_000..2_000).contains(&count(&mut store, at(3))));
        if checkpoint {
            store.send("a", &Send::new(b"new"), at(3)).unwrap();
            assert!(count(&mut store, at(3)) > 1_000);
        }
        settle(&mut store, at(4));
        assert_eq!(count(&mut store, at(4)), 3);
    }
}

#[test]
fn nothing_goes_where_new_messages_are_refused() {
    let disk = SimDisk::new();
    let mut store = created(&disk, Policy { discard: Discard::New, ..Policy::default() });
    send(&mut store, 10);
    store.update_mailbox("a", NOTHING, |policy| policy.max_msgs = 3, at(2)).unwrap();
    settle(&mut store, at(3));
    assert_eq!(count(&mut store, at(3)), 10);
    let refused = store.send("a", &Send::new(b"new"), at(3));
    assert!(matches!(refused, Err(Error::MailboxFull { .. })));
    store.update_mailbox("a", NOTHING, |policy| policy.discard = Discard::Old, at(4)).unwrap();
    assert_eq!(ids(&mut store, at(4)), [7, 8, 9]);
}

#[test]
fn surplus_that_is_delayed_goes_when_it_is_due() {
    let disk = SimDisk::new();
    let mut store = created(&disk, Policy::default());
    for _ in 0..5 {
        store.send("a", &Send { delay_ms: 5_000, ..Send::new(b"later") }, at(1)).unwrap();
    }
    store.update_mailbox("a", NOTHING, |policy| policy.max_msgs = 2, at(2)).unwrap();
    for ms in [1_002, 3_000, 5_001, 5_002, 6_100] {
        settle(&mut store, at(ms));
    }
    assert_eq!(ids(&mut store, at(6_100)), [3, 4]);
}

#[test]
fn a_lowered_age_counts_for_messages_sent_afterwards() {
    let disk = SimDisk::new();
    let mut store = created(&disk, Policy::default());
    send(&mut store, 1);
    store.update_mailbox("a", NOTHING, |policy| policy.max_age_ms = 100, at(2)).unwrap();
    store.send("a", &Send::new(b"brief"), at(3)).unwrap();
    assert_eq!(ids(&mut store, at(102)), [0, 1]);
    assert_eq!(ids(&mut store, at(103)), [0]);
}

#[test]
fn groups_that_are_there_go_by_a_new_group_ttl() {
    let disk = SimDisk::new();
    let mut store = created(&disk, Policy::default());
    send(&mut store, 1);
    fetch(&mut store, at(10));
    let groups = |store: &mut Store, ms: u64| store.mailbox("a", at(ms)).unwrap().groups.len();
    // Neither a later one nor an earlier one than it had counts any more.
    for ttl_ms in [9_000_000, 60_000, 2_000_000] {
        store.update_mailbox("a", NOTHING, |policy| policy.group_ttl_ms = ttl_ms, at(20)).unwrap();
    }
    store.tick(at(2_000_009));
    assert_eq!(groups(&mut store, 2_000_009), 1);
    store.tick(at(2_000_010));
    assert_eq!(groups(&mut store, 2_000_010), 0);
}

#[test]
fn a_lowered_max_deliver_moves_what_was_delivered_too_often_already() {
    let disk = SimDisk::new();
    let mut store = created(&disk, Policy::default());
    send(&mut store, 3);
    for ms in [2, 3] {
        assert_eq!(fetch(&mut store, at(ms)), [0, 1, 2]);
        let kind = AckKind::Return { delay_ms: 0 };
        store.ack(&Ack { address: "a", group: "g", msg_ids: &[0, 1, 2], kind }, at(ms)).unwrap();
    }
    let lower = |policy: &mut Policy| {
        policy.max_deliver = 2;
        policy.dead_letter = Some("dead".into());
    };
    store.update_mailbox("a", NOTHING, lower, at(4)).unwrap();
    assert_eq!(store.mailbox("dead", at(4)).unwrap().messages, 3);
    assert!(fetch(&mut store, at(5)).is_empty());
}

#[test]
fn a_raised_limit_lets_those_who_wait_have_more() {
    let disk = SimDisk::new();
    let mut store = created(&disk, Policy { max_ack_pending: 1, ..Policy::default() });
    send(&mut store, 2);
    assert_eq!(fetch(&mut store, at(2)), [0]);
    let other = Fetch { wait_ms: 60_000, conn: 1, ..Fetch::group("a", "g", 10) };
    assert!(matches!(store.fetch(other, at(3)).unwrap(), FetchOutcome::Waiting(_)));
    store.update_mailbox("a", NOTHING, |policy| policy.max_ack_pending = 2, at(4)).unwrap();
    let done = store.completions(at(4));
    assert_eq!(done[0].outcome.as_ref().unwrap().len(), 1);
}
