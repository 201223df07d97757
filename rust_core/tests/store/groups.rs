//! Groups that go: what they held, who waits for them, and the places they leave.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use mq9_core::error::Error;
use mq9_core::mailbox::{Policy, Tier};
use mq9_core::store::{
    Ack, AckKind, Fetch, FetchOutcome, GroupFetch, MemberId, NewMailbox, Options, Send, Store,
};
use mq9_core::time::Now;
use mq9_sim::{Fault, Faults, FaultyDisk, Operation, SimDisk};

const START: Now = Now { wall_ms: 1_700_000_000_000, mono_ms: 5_000 };
const ACK_WAIT_MS: u64 = 30_000;

fn at(ms: u64) -> Now {
    Now { wall_ms: START.wall_ms + ms, mono_ms: START.mono_ms + ms }
}

fn open(disk: &SimDisk, options: Options) -> Store {
    Store::open(Arc::new(disk.clone()), options, 42, START).unwrap()
}

fn store(policy: Policy, options: Options) -> Store {
    let mut store = open(&SimDisk::new(), options);
    let new = NewMailbox { address: "a", policy, ..Default::default() };
    store.create_mailbox(&new, START).unwrap();
    store
}

fn send(store: &mut Store, payload: &[u8]) {
    store.send("a", &Send::new(payload), START).unwrap();
}

fn fetch(store: &mut Store, conn: u64, group: &str, now: Now) -> Vec<(u64, u32)> {
    match store.fetch(Fetch { conn, ..Fetch::group("a", group, 10) }, now).unwrap() {
        FetchOutcome::Messages(batch) => {
            batch.iter().map(|(meta, _)| (meta.msg_id, meta.deliveries)).collect()
        }
        FetchOutcome::Waiting(_) => panic!("did not ask to wait"),
    }
}

fn wait(store: &mut Store, group: &str) -> u64 {
    let request = Fetch { conn: 9, wait_ms: 60_000, ..Fetch::group("a", group, 10) };
    match store.fetch(request, START).unwrap() {
        FetchOutcome::Waiting(waiter) => waiter,
        FetchOutcome::Messages(_) => panic!("there should be nothing"),
    }
}

fn names(store: &mut Store) -> Vec<String> {
    names_at(store, START)
}

fn names_at(store: &mut Store, now: Now) -> Vec<String> {
    let info = store.mailbox("a", now).unwrap();
    info.groups.into_iter().map(|group| group.name).collect()
}

#[test]
fn a_removed_group_starts_over_and_others_stay() {
    let mut store = store(Policy::default(), Options::default());
    send(&mut store, b"0");
    send(&mut store, b"1");
    assert_eq!(fetch(&mut store, 1, "g", START), [(0, 1), (1, 1)]);
    assert_eq!(fetch(&mut store, 1, "h", START), [(0, 1), (1, 1)]);
    store.remove_group("a", "g", START).unwrap();
    assert_eq!(names(&mut store), ["h"]);
    let ack =
        |group| Ack { address: "a", group, msg_ids: &[1], kind: AckKind::Done { only: false } };
    assert!(matches!(store.ack(&ack("g"), START), Err(Error::NotGiven { .. })));
    store.ack(&ack("h"), START).unwrap();
    assert_eq!(fetch(&mut store, 1, "h", START), []);
    assert_eq!(fetch(&mut store, 2, "g", START), [(0, 1), (1, 1)]);
}

#[test]
fn what_is_not_there_cannot_be_removed() {
    let mut store = store(Policy::default(), Options::default());
    let gone = store.remove_group("a", "g", START).unwrap_err();
    assert_eq!(gone.to_string(), "group g of mailbox a does not exist");
    let gone = store.remove_group("b", "g", START).unwrap_err();
    assert_eq!(gone.to_string(), "mailbox b does not exist");
    assert_eq!(fetch(&mut store, 1, "g", START), []);
    store.remove_group("a", "g", START).unwrap();
    assert!(matches!(store.remove_group("a", "g", START), Err(Error::GroupNotFound { .. })));
}

#[test]
fn a_mailbox_full_of_groups_has_room_again() {
    let mut store = store(Policy::default(), Options { max_groups: 3, ..Options::default() });
    for name in ["g", "h", "i"] {
        assert_eq!(fetch(&mut store, 1, name, START), []);
    }
    let refused = store.fetch(Fetch::group("a", "j", 1), START);
    assert!(matches!(refused, Err(Error::TooManyGroups { .. })));
    store.remove_group("a", "h", START).unwrap();
    assert_eq!(fetch(&mut store, 1, "j", START), []);
    assert_eq!(names(&mut store), ["g", "j", "i"]);
    assert!(store.fetch(Fetch::group("a", "h", 1), START).is_err());
}

#[test]
fn waits_of_a_removed_group_end_with_an_error_and_no_others() {
    let mut store = store(Policy::default(), Options::default());
    let (first, second, other) =
        (wait(&mut store, "g"), wait(&mut store, "g"), wait(&mut store, "h"));
    store.remove_group("a", "g", START).unwrap();
    let done = store.completions(START);
    assert_eq!(done.iter().map(|done| done.waiter).collect::<Vec<_>>(), [first, second]);
    for done in &done {
        let error = done.outcome.as_ref().unwrap_err();
        assert_eq!(error.to_string(), "group g of mailbox a does not exist");
    }
    assert_eq!((store.waiting(), store.waits_of(9)), (1, 1));
    send(&mut store, b"0");
    let done = store.completions(START);
    assert_eq!((done.len(), done[0].waiter), (1, other));
}

/// The timer of the first group's lease, and what its connection held, must mean nothing to the second.
#[test]
fn the_place_of_a_removed_group_is_used_again_safely() {
    let mut store = store(Policy::default(), Options::default());
    send(&mut store, b"0");
    assert_eq!(fetch(&mut store, 1, "g", START), [(0, 1)]);
    store.remove_group("a", "g", START).unwrap();
    assert_eq!(store.sleep_ms(START), None);
    assert_eq!(fetch(&mut store, 2, "h", at(10_000)), [(0, 1)]);
    // The lease of g would end here.
    store.tick(at(ACK_WAIT_MS + 1));
    assert_eq!(fetch(&mut store, 3, "h", at(ACK_WAIT_MS + 1)), []);
    // And the connection that held it goes.
    store.disconnect(1, at(ACK_WAIT_MS + 2));
    assert_eq!(fetch(&mut store, 3, "h", at(ACK_WAIT_MS + 2)), []);
    assert_eq!(fetch(&mut store, 3, "h", at(ACK_WAIT_MS + 10_000)), [(0, 2)]);
    // Nothing is left to wake up for but the lease of h.
    let sleep = store.sleep_ms(at(ACK_WAIT_MS + 10_000));
    assert_eq!(sleep, Some(ACK_WAIT_MS));
}

#[test]
fn a_work_queue_keeps_what_a_removed_group_has_not_acknowledged() {
    let policy = Policy { work_queue: true, ..Policy::default() };
    let mut store = store(policy, Options::default());
    for payload in [b"0", b"1", b"2"] {
        send(&mut store, payload);
    }
    assert_eq!(fetch(&mut store, 1, "w", START), [(0, 1), (1, 1), (2, 1)]);
    let kind = AckKind::Done { only: true };
    store.ack(&Ack { address: "a", group: "w", msg_ids: &[1], kind }, START).unwrap();
    store.remove_group("a", "w", START).unwrap();
    assert_eq!(store.mailbox("a", START).unwrap().messages, 2);
    // Whoever comes next has them at once, and as if for the first time.
    assert_eq!(fetch(&mut store, 2, "w", START), [(0, 1), (2, 1)]);
}

#[test]
fn a_removed_group_stays_away_over_restarts() {
    for tier in [Tier::Durable, Tier::Memory] {
        let disk = SimDisk::new();
        let mut store = open(&disk, Options::default());
        let policy = Policy { tier, ..Policy::default() };
        let new = NewMailbox { address: "a", policy, ..Default::default() };
        store.create_mailbox(&new, START).unwrap();
        send(&mut store, b"0");
        for group in ["g", "h"] {
            let (name, member) = (group.to_owned(), MemberId::Named("m".to_owned()));
            let group = Some(GroupFetch { name, member, force: false });
            store.fetch(Fetch { group, ..Fetch::all("a") }, START).unwrap();
        }
        store.remove_group("a", "g", START).unwrap();
        let left: &[&str] = if tier == Tier::Durable { &["h"] } else { &[] };
        store.sync().unwrap();
        let mut killed = open(&disk.snapshot(), Options::default());
        assert_eq!(names(&mut killed), left, "from the log");
        store.close().unwrap();
        let mut store = open(&disk, Options::default());
        assert_eq!(names(&mut store), left, "from a checkpoint");
    }
}

/// Groups live ten seconds where the mailbox does not say.
const TTL: Options = Options {
    segment_bytes: 64 << 20,
    allocate_bytes: 4096,
    sync: mq9_core::log::SyncMode::None,
    ack_wait_ms: ACK_WAIT_MS,
    max_groups: 1024,
    group_ttl_ms: 10_000,
    quotas: mq9_core::store::Quotas::DEFAULT,
    checkpoint_bytes: 256 << 20,
};

#[test]
fn a_group_that_nobody_uses_goes_when_its_time_is_over() {
    let mut store = store(Policy::default(), TTL);
    fetch(&mut store, 1, "g", START);
    fetch(&mut store, 1, "h", at(4_000));
    assert_eq!(names_at(&mut store, at(9_999)), ["g", "h"]);
    assert_eq!(names_at(&mut store, at(10_000)), ["h"]);
    assert_eq!(names_at(&mut store, at(13_999)), ["h"]);
    assert_eq!(names_at(&mut store, at(14_000)), [""; 0]);
    assert_eq!(store.sleep_ms(at(14_000)), None);
}

#[test]
fn fetching_and_acknowledging_are_use() {
    let mut store = store(Policy::default(), TTL);
    send(&mut store, b"0");
    assert_eq!(fetch(&mut store, 1, "g", START), [(0, 1)]);
    for (ms, kind) in [(8_000, AckKind::Progress), (16_000, AckKind::Done { only: true })] {
        store.ack(&Ack { address: "a", group: "g", msg_ids: &[0], kind }, at(ms)).unwrap();
    }
    assert_eq!(fetch(&mut store, 1, "g", at(24_000)), []);
    assert_eq!(names_at(&mut store, at(33_999)), ["g"]);
    assert_eq!(names_at(&mut store, at(34_000)), [""; 0]);
    // Not its own doing.
    fetch(&mut store, 1, "g", at(34_000));
    store.disconnect(1, at(34_000));
    store.send("a", &Send::new(b"1"), at(40_000)).unwrap();
    let kind = AckKind::Done { only: true };
    store.ack(&Ack { address: "a", group: "g", msg_ids: &[9], kind }, at(41_000)).unwrap_err();
    assert_eq!(names_at(&mut store, at(44_000)), [""; 0]);
}

#[test]
fn a_wait_is_use_as_long_as_it_takes() {
    let mut store = store(Policy::default(), TTL);
    wait(&mut store, "g");
    assert_eq!(names_at(&mut store, at(59_999)), ["g"]);
    // The wait ends unanswered here.
    store.tick(at(60_000));
    assert_eq!(store.completions(at(60_000)).len(), 1);
    assert_eq!(names_at(&mut store, at(69_999)), ["g"]);
    assert_eq!(names_at(&mut store, at(70_000)), [""; 0]);
}

#[test]
fn messages_in_the_hands_of_a_member_are_use_as_long_as_its_time_runs() {
    let mut store = store(Policy::default(), TTL);
    send(&mut store, b"0");
    let held = Fetch { ack_wait_ms: 25_000, ..Fetch::group("a", "g", 1) };
    store.fetch(held, START).unwrap();
    assert_eq!(names_at(&mut store, at(24_999)), ["g"]);
    let kind = AckKind::Done { only: true };
    store.ack(&Ack { address: "a", group: "g", msg_ids: &[0], kind }, at(24_999)).unwrap();
    assert_eq!(names_at(&mut store, at(34_998)), ["g"]);
    assert_eq!(names_at(&mut store, at(34_999)), [""; 0]);
    // Whoever does not acknowledge keeps it no longer than that.
    let held = Fetch { ack_wait_ms: 25_000, ..Fetch::group("a", "h", 1) };
    store.fetch(held, at(40_000)).unwrap();
    assert_eq!(names_at(&mut store, at(64_999)), ["h"]);
    assert_eq!(names_at(&mut store, at(80_000)), [""; 0]);
    assert_eq!(store.sleep_ms(at(80_000)), None);
}

/// However many deliveries go at once, nobody waits until all of them are dropped.
#[test]
fn what_a_removed_group_was_given_is_dropped_a_part_at_a_time() {
    type Case = (&'static str, fn(&mut Store));
    let cases: [Case; 4] = [
        ("the group is removed", |s| s.remove_group("a", "g", START).unwrap()),
        ("the mailbox is removed", |s| s.remove_mailbox("a", START).unwrap()),
        ("it is emptied", |s| assert_eq!(s.purge("a", START).unwrap(), 10_000)),
        ("the group begins anew", |s| {
            let group = GroupFetch { name: "g".to_owned(), member: MemberId::Conn, force: true };
            let anew = Fetch { group: Some(group), max_msgs: 1, ..Fetch::group("a", "g", 2) };
            s.fetch(anew, START).unwrap();
        }),
    ];
    for (case, act) in cases {
        let mut store = store(Policy::default(), Options::default());
        (0..10_000).for_each(|_| send(&mut store, b""));
        let all = Fetch { conn: 1, ..Fetch::group("a", "g", 10_000) };
        assert!(matches!(store.fetch(all, START), Ok(FetchOutcome::Messages(_))), "{case}");
        act(&mut store);
        let mut steps = 1;
        while store.tick(START) {
            steps += 1;
        }
        assert!((9..=21).contains(&steps), "{case}: {steps} steps");
    }
}

#[test]
fn the_mailbox_says_how_long_its_groups_live() {
    let own = |group_ttl_ms| Policy { group_ttl_ms, ..Policy::default() };
    let mut longer = store(own(20_000), TTL);
    fetch(&mut longer, 1, "g", START);
    assert_eq!(names_at(&mut longer, at(19_999)), ["g"]);
    assert_eq!(names_at(&mut longer, at(20_000)), [""; 0]);
    let mut never = store(own(Policy::NEVER), TTL);
    fetch(&mut never, 1, "g", START);
    assert_eq!(never.sleep_ms(START), None);
    assert_eq!(names_at(&mut never, at(1 << 40)), ["g"]);
    let mut alone = store(own(1_000), Options::default());
    fetch(&mut alone, 1, "g", START);
    assert_eq!(names_at(&mut alone, at(1_000)), [""; 0]);
}

#[test]
fn after_a_restart_the_time_of_a_group_begins_anew_and_what_went_stays_away() {
    let disk = SimDisk::new();
    let mut store = open(&disk, TTL);
    store.create_mailbox(&NewMailbox { address: "a", ..Default::default() }, START).unwrap();
    fetch(&mut store, 1, "gone", START);
    fetch(&mut store, 1, "kept", at(5_000));
    assert_eq!(names_at(&mut store, at(12_000)), ["kept"]);
    store.close().unwrap();
    // The machine was started anew as well: its monotonic clock says less than before.
    let again = |ms: u64| Now { wall_ms: START.wall_ms + 12_000 + ms, mono_ms: 100 + ms };
    let mut store = Store::open(Arc::new(disk), TTL, 42, again(0)).unwrap();
    assert_eq!(names_at(&mut store, again(9_999)), ["kept"]);
    assert_eq!(names_at(&mut store, again(10_000)), [""; 0]);
}

/// What is kept on a full disk is for those who acknowledge and remove: a group that goes by itself frees nothing.
#[test]
fn a_group_that_goes_by_itself_takes_nothing_of_the_last_space() {
    let faults = Faults::new();
    let disk = Arc::new(FaultyDisk::new(SimDisk::new(), faults.clone()));
    let options = Options { segment_bytes: 1 << 20, allocate_bytes: 64 << 10, ..TTL };
    let mut store = Store::open(disk, options, 42, START).unwrap();
    store.create_mailbox(&NewMailbox { address: "a", ..Default::default() }, START).unwrap();
    for n in 0..10 {
        fetch(&mut store, 1, &format!("g{n}"), START);
    }
    store.sync().unwrap();
    faults.fail(Operation::Allocate, Fault::no_space());
    faults.fail(Operation::Create, Fault::no_space());
    while store.send("a", &Send::new(&[7; 1000]), START).is_ok() {}
    // To begin anew is recorded, and refused before the last of the space is used.
    let group = GroupFetch { name: "g9".to_owned(), member: MemberId::Conn, force: true };
    let anew = Fetch { group: Some(group), max_msgs: 0, ..Fetch::all("a") };
    while store.fetch(anew.clone(), START).is_ok() {}
    // A shorter record may still fit.
    let left = names_at(&mut store, at(10_000));
    assert!(left.len() >= 8, "{left:?}");
    for group in &left[1..] {
        store.remove_group("a", group, at(10_000)).unwrap();
    }
    assert_eq!(names_at(&mut store, at(10_000)), left[..1]);
    faults.clear();
    assert_eq!(names_at(&mut store, at(12_000)), [""; 0]);
}

#[test]
fn using_a_group_writes_nothing() {
    let mut store = store(Policy::default(), TTL);
    fetch(&mut store, 1, "g", START);
    let end = store.end();
    for ms in 0..100 {
        fetch(&mut store, 1, "g", at(ms));
    }
    assert_eq!(store.end(), end);
}

#[test]
fn a_look_at_mailboxes_ends_behind_many_groups_and_goes_on_where_it_ended() {
    let mut store = open(&SimDisk::new(), Options::default());
    let addresses: Vec<String> = (0..5).map(|number| format!("m{number}")).collect();
    for address in &addresses {
        store.create_mailbox(&NewMailbox { address, ..Default::default() }, START).unwrap();
        for group in 0..600 {
            store.fetch(Fetch::group(address, &format!("g{group}"), 1), START).unwrap();
        }
    }
    let (mut seen, mut from, mut looks) = (Vec::new(), Some(0), 0);
    while let Some(start) = from {
        let (some, next) = store.mailboxes(start, usize::MAX);
        seen.extend(some.into_iter().map(|info| info.address));
        (from, looks) = (next, looks + 1);
    }
    assert_eq!((&seen, looks), (&addresses, 3));
    let some = store.mailboxes_at(&addresses, START).unwrap();
    let some: Vec<String> = some.into_iter().map(|info| info.unwrap().address).collect();
    assert_eq!(some, addresses[..2]);
}
