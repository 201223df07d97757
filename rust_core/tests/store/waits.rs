//! Long polls are answered the moment something becomes available, whatever made it so.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use mq9_core::mailbox::{Level, Policy};
use mq9_core::store::{
    Ack, AckKind, Fetch, FetchOutcome, GroupFetch, MemberId, NewMailbox, Options, Send, Store,
};
use mq9_core::time::Now;
use mq9_sim::SimDisk;

const START: Now = Now { wall_ms: 1_700_000_000_000, mono_ms: 5_000 };

fn at(ms: u64) -> Now {
    Now { wall_ms: START.wall_ms + ms, mono_ms: START.mono_ms + ms }
}

fn store(policy: Policy) -> Store {
    let mut store = Store::open(Arc::new(SimDisk::new()), Options::default(), 42, START).unwrap();
    let new = NewMailbox { address: "a", policy, ..Default::default() };
    store.create_mailbox(&new, START).unwrap();
    store
}

fn one_pending() -> Policy {
    Policy { max_ack_pending: 1, ..Policy::default() }
}

fn send(store: &mut Store, level: Level, ttl_ms: u64) {
    store.send("a", &Send { level, ttl_ms, ..Send::new(b"x") }, START).unwrap();
}

fn fetch(store: &mut Store, conn: u64, max_msgs: usize) -> Vec<u64> {
    match store.fetch(Fetch { conn, ..Fetch::group("a", "g", max_msgs) }, START).unwrap() {
        FetchOutcome::Messages(batch) => batch.iter().map(|(meta, _)| meta.msg_id).collect(),
        FetchOutcome::Waiting(_) => panic!("did not ask to wait"),
    }
}

/// A wait of the connection 9, which finds nothing.
fn wait(store: &mut Store) {
    let request = Fetch { conn: 9, wait_ms: 60_000, ..Fetch::group("a", "g", 10) };
    assert!(matches!(store.fetch(request, START).unwrap(), FetchOutcome::Waiting(_)));
    assert!(store.completions(START).is_empty());
}

fn answered(store: &mut Store, now: Now) -> Vec<u64> {
    let done = store.completions(now);
    assert_eq!(done.len(), 1);
    done[0].outcome.as_ref().unwrap().iter().map(|(meta, _)| meta.msg_id).collect()
}

#[test]
fn a_deletion_makes_room_under_max_ack_pending() {
    let mut store = store(one_pending());
    send(&mut store, Level::NORMAL, 0);
    send(&mut store, Level::NORMAL, 0);
    assert_eq!(fetch(&mut store, 1, 10), [0]);
    wait(&mut store);
    store.delete("a", 0, START).unwrap();
    assert_eq!(answered(&mut store, START), [1]);
}

#[test]
fn an_expiry_makes_room_under_max_ack_pending() {
    let mut store = store(one_pending());
    send(&mut store, Level::NORMAL, 500);
    send(&mut store, Level::NORMAL, 0);
    assert_eq!(fetch(&mut store, 1, 10), [0]);
    wait(&mut store);
    store.tick(at(500));
    assert_eq!(answered(&mut store, at(500)), [1]);
}

#[test]
fn a_group_pinned_anew_has_messages_for_all_its_members() {
    let mut store = store(Policy::default());
    send(&mut store, Level::NORMAL, 0);
    send(&mut store, Level::NORMAL, 0);
    assert_eq!(fetch(&mut store, 1, 10), [0, 1]);
    wait(&mut store);
    let group = GroupFetch { name: "g".to_owned(), member: MemberId::Conn, force: true };
    let request = Fetch { conn: 1, group: Some(group), ..Fetch::group("a", "g", 1) };
    store.fetch(request, START).unwrap();
    assert_eq!(answered(&mut store, START), [1]);
}

#[test]
fn what_a_smaller_batch_leaves_behind_is_for_those_who_wait() {
    let mut store = store(Policy::default());
    send(&mut store, Level::NORMAL, 0);
    send(&mut store, Level::NORMAL, 0);
    assert_eq!(fetch(&mut store, 1, 10), [0, 1]);
    wait(&mut store);
    assert_eq!(fetch(&mut store, 1, 1), [0]);
    assert_eq!(answered(&mut store, START), [1]);
}

#[test]
fn a_fetch_that_moves_a_dead_message_gets_what_that_made_room_for() {
    let dead_letter = Some("dead".into());
    let mut store = store(Policy { max_deliver: 1, dead_letter, ..one_pending() });
    send(&mut store, Level::NORMAL, 0);
    assert_eq!(fetch(&mut store, 1, 10), [0]);
    send(&mut store, Level::CRITICAL, 0);
    let kind = AckKind::Return { delay_ms: 0 };
    store.ack(&Ack { address: "a", group: "g", msg_ids: &[0], kind }, START).unwrap();
    assert_eq!(fetch(&mut store, 1, 10), [1]);
    assert_eq!(store.mailbox("dead", START).unwrap().messages, 1);
}
