//! Quotas of clients are counted right whatever comes and goes, over restarts too.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use mq9_core::error::Error;
use mq9_core::mailbox::{Policy, Tier};
use mq9_core::store::{
    Ack, AckKind, Amount, Changes, Fetch, FetchOutcome, GroupFetch, MemberId, NewMailbox, Once,
    Options, Quotas, Send, Start, Store, Waits,
};
use mq9_core::time::Now;
use mq9_sim::SimDisk;

const START: Now = Now { wall_ms: 1_700_000_000_000, mono_ms: 5_000 };

fn at(ms: u64) -> Now {
    Now { wall_ms: START.wall_ms + ms, mono_ms: START.mono_ms + ms }
}

fn open(disk: &SimDisk, quotas: Quotas, now: Now) -> Store {
    let options = Options { quotas, ..Options::default() };
    Store::open(Arc::new(disk.clone()), options, 42, now).unwrap()
}

fn create(store: &mut Store, address: &str, owner: Option<&str>) -> Result<(), Error> {
    let policy = Policy { owner: owner.map(Box::from), ..Policy::default() };
    store.create_mailbox(&NewMailbox { address, policy, ..Default::default() }, START)
}

fn send(store: &mut Store, address: &str, size: usize) -> Result<Option<u64>, Error> {
    store.send(address, &Send::new(&vec![b'x'; size]), START)
}

fn refusal<T: std::fmt::Debug>(outcome: Result<T, Error>) -> String {
    outcome.unwrap_err().to_string()
}

/// Bytes of a message as stored in a mailbox with a name of one letter.
fn stored(size: u64) -> u64 {
    20 + 42 + 1 + size
}

#[test]
fn there_are_as_many_mailboxes_as_allowed() {
    let quotas = Quotas { max_mailboxes: 3, max_mailboxes_per_user: 2, ..Quotas::DEFAULT };
    let disk = SimDisk::new();
    let mut store = open(&disk, quotas, START);
    for (address, owner) in [("a", Some("ada")), ("b", Some("ada"))] {
        create(&mut store, address, owner).unwrap();
    }
    let own = "quota max_mailboxes_per_user reached: at most 2 mailboxes";
    assert_eq!(refusal(create(&mut store, "c", Some("ada"))), own);
    create(&mut store, "c", Some("bob")).unwrap();
    let all = "quota max_mailboxes reached: at most 3 mailboxes";
    for owner in [None, Some("bob"), Some("ada")] {
        assert_eq!(refusal(create(&mut store, "d", owner)), all);
    }
    // The broker's own are nobody's.
    create(&mut store, "$d", None).unwrap();
    assert!(matches!(create(&mut store, "a", None), Err(Error::MailboxExists(_))));
    store.close().unwrap();
    let mut store = open(&disk, quotas, START);
    assert_eq!(refusal(create(&mut store, "d", None)), all);
    store.remove_mailbox("c", START).unwrap();
    assert_eq!(refusal(create(&mut store, "d", Some("ada"))), own);
    store.remove_mailbox("a", START).unwrap();
    create(&mut store, "d", Some("ada")).unwrap();
}

#[test]
fn a_mailbox_that_expires_makes_room_for_another() {
    let quotas = Quotas { max_mailboxes: 1, ..Quotas::DEFAULT };
    let mut store = open(&SimDisk::new(), quotas, START);
    let brief = NewMailbox { address: "a", ttl_ms: 1_000, ..Default::default() };
    store.create_mailbox(&brief, START).unwrap();
    let next = NewMailbox { address: "b", ..Default::default() };
    assert!(store.create_mailbox(&next, at(999)).is_err());
    store.create_mailbox(&next, at(1_000)).unwrap();
}

#[test]
fn there_are_as_many_bytes_as_allowed() {
    let (all, own) = (4 * stored(100), 2 * stored(100));
    let quotas = Quotas { max_store_bytes: all, max_bytes_per_user: own, ..Quotas::DEFAULT };
    let disk = SimDisk::new();
    let mut store = open(&disk, quotas, START);
    for (address, owner) in [("a", Some("ada")), ("b", Some("ada")), ("c", None)] {
        create(&mut store, address, owner).unwrap();
    }
    send(&mut store, "a", 100).unwrap();
    send(&mut store, "b", 100).unwrap();
    let too_much = format!("quota max_bytes_per_user reached: at most {own} bytes");
    assert_eq!(refusal(send(&mut store, "b", 0)), too_much);
    send(&mut store, "c", 100).unwrap();
    assert_eq!(send(&mut store, "c", 100).unwrap(), Some(1));
    let full = format!("quota max_store_bytes reached: at most {all} bytes");
    assert_eq!(refusal(send(&mut store, "c", 0)), full);
    create(&mut store, "$own", None).unwrap();
    send(&mut store, "$own", 1000).unwrap();
    // After a restart it is the same: from the log, and from a checkpoint.
    store.sync().unwrap();
    drop(store);
    let mut store = open(&disk, quotas, START);
    assert_eq!(refusal(send(&mut store, "c", 0)), full);
    store.close().unwrap();
    let mut store = open(&disk, quotas, START);
    assert_eq!(refusal(send(&mut store, "c", 0)), full);
    store.delete("c", 0, START).unwrap();
    assert_eq!(refusal(send(&mut store, "a", 0)), too_much);
    send(&mut store, "c", 100).unwrap();
    store.remove_mailbox("b", START).unwrap();
    send(&mut store, "a", 100).unwrap();
    store.purge("c", START).unwrap();
    send(&mut store, "c", 100).unwrap();
    send(&mut store, "c", 100).unwrap();
    assert_eq!(refusal(send(&mut store, "c", 0)), full);
}

/// Everything that takes bytes away gives room for as many again.
#[test]
fn what_goes_makes_room_however_it_goes() {
    let one = stored(100);
    for tier in [Tier::Durable, Tier::Memory] {
        let quotas = Quotas { max_store_bytes: one, ..Quotas::DEFAULT };
        let mut store = open(&SimDisk::new(), quotas, START);
        let policy = Policy { tier, work_queue: true, ..Policy::default() };
        let new = NewMailbox { address: "a", policy, ..Default::default() };
        store.create_mailbox(&new, START).unwrap();
        let payload = [b'x'; 100];
        let plain = Send::new(&payload);
        let expect_full = |store: &mut Store, ms: u64| {
            let refused = store.send("a", &Send::new(b""), at(ms));
            assert!(matches!(refused, Err(Error::QuotaExceeded { .. })), "{refused:?}");
        };
        // It expires.
        store.send("a", &Send { ttl_ms: 10, ..plain }, at(0)).unwrap();
        expect_full(&mut store, 9);
        // It is delayed, enters its lane and is acknowledged.
        store.send("a", &Send { delay_ms: 10, ..plain }, at(10)).unwrap();
        expect_full(&mut store, 11);
        expect_full(&mut store, 20);
        let fetched = store.fetch(Fetch::group("a", "g", 9), at(21)).unwrap();
        let FetchOutcome::Messages(batch) = fetched else { panic!("there is one") };
        let msg_ids: Vec<u64> = batch.iter().map(|(meta, _)| meta.msg_id).collect();
        let kind = AckKind::Done { only: true };
        store.ack(&Ack { address: "a", group: "g", msg_ids: &msg_ids, kind }, at(22)).unwrap();
        // It is delayed and expires before it is due.
        store.send("a", &Send { delay_ms: 10, ttl_ms: 5, ..plain }, at(30)).unwrap();
        expect_full(&mut store, 31);
        store.tick(at(40));
        // One of the same key takes its place, in the same room.
        for _ in 0..3 {
            store.send("a", &Send { key: "k", ..Send::new(&payload[1..]) }, at(50)).unwrap();
        }
        expect_full(&mut store, 51);
    }
}

#[test]
fn a_mailbox_that_makes_room_itself_takes_messages_at_the_limit() {
    for (policy, messages) in [
        (Policy { latest: true, ..Policy::default() }, 1),
        (Policy { max_msgs: 2, ..Policy::default() }, 2),
    ] {
        let quotas = Quotas { max_store_bytes: messages * stored(100), ..Quotas::DEFAULT };
        let mut store = open(&SimDisk::new(), quotas, START);
        let new = NewMailbox { address: "a", policy, ..Default::default() };
        store.create_mailbox(&new, START).unwrap();
        for _ in 0..9 {
            send(&mut store, "a", 100).unwrap();
        }
        assert!(matches!(send(&mut store, "a", 1000), Err(Error::QuotaExceeded { .. })));
    }
}

#[test]
fn a_dead_letter_is_counted_to_the_owner_and_never_refused() {
    let quotas = Quotas { max_bytes_per_user: stored(100), ..Quotas::DEFAULT };
    let mut store = open(&SimDisk::new(), quotas, START);
    let policy =
        Policy { dead_letter: Some("d".into()), owner: Some("ada".into()), ..Policy::default() };
    let new = NewMailbox { address: "a", policy, ..Default::default() };
    store.create_mailbox(&new, START).unwrap();
    send(&mut store, "a", 100).unwrap();
    store.fetch(Fetch::group("a", "g", 9), START).unwrap();
    let kind = AckKind::Terminate;
    store.ack(&Ack { address: "a", group: "g", msg_ids: &[0], kind }, START).unwrap();
    let dead = store.mailbox("d", START).unwrap();
    assert_eq!((dead.messages, dead.policy.owner.as_deref()), (1, Some("ada")));
    store.purge("a", START).unwrap();
    assert!(matches!(send(&mut store, "a", 100), Err(Error::QuotaExceeded { .. })));
}

#[test]
fn a_send_with_an_id_is_refused_like_any_other_and_may_come_again() {
    let most = stored(100) + 2 * ID_BYTES;
    let quotas = Quotas { max_store_bytes: most, ..Quotas::DEFAULT };
    let disk = SimDisk::new();
    let mut store = open(&disk, quotas, START);
    create(&mut store, "a", None).unwrap();
    let payload = [b'x'; 100];
    let message = Send::new(&payload);
    let first = store.send_once("a", "one", &message, START).unwrap();
    assert_eq!(first, Once { msg_id: Some(0), duplicate: false });
    let full = format!("quota max_store_bytes reached: at most {most} bytes");
    assert_eq!(refusal(store.send_once("a", "two", &message, START)), full);
    // What was carried out is answered again: it takes no room.
    let again = store.send_once("a", "one", &message, START).unwrap();
    assert_eq!(again, Once { msg_id: Some(0), duplicate: true });
    // The id of what was refused is not taken.
    store.delete("a", 0, START).unwrap();
    let second = store.send_once("a", "two", &message, START).unwrap();
    assert_eq!(second, Once { msg_id: Some(1), duplicate: false });
}

/// What an id of three characters counts.
const ID_BYTES: u64 = 99;

#[test]
fn ids_of_sends_count_until_they_are_forgotten_over_restarts() {
    let quotas = Quotas { max_bytes_per_user: 10 * ID_BYTES, ..Quotas::DEFAULT };
    let disk = SimDisk::new();
    let mut store = open(&disk, quotas, START);
    let policy = Policy { latest: true, owner: Some("ada".into()), ..Policy::default() };
    store
        .create_mailbox(&NewMailbox { address: "a", policy, ..Default::default() }, START)
        .unwrap();
    let message = Send::new(b"");
    let mut sent = 0;
    let refused = loop {
        match store.send_once("a", &format!("{sent:03}"), &message, START) {
            Ok(_) => sent += 1,
            Err(error) => break error.to_string(),
        }
    };
    assert_eq!(
        refused,
        format!("quota max_bytes_per_user reached: at most {} bytes", 10 * ID_BYTES)
    );
    assert!((5..10).contains(&sent), "{sent}");
    let used = sent * ID_BYTES + store.mailbox("a", START).unwrap().bytes;
    assert_eq!((store.usage().bytes, store.usage_of("ada").bytes), (used, used));
    // The same again takes no room, and neither does one without an id.
    assert!(store.send_once("a", "000", &message, START).unwrap().duplicate);
    store.send("a", &message, START).unwrap();
    for orderly in [false, true] {
        if orderly {
            store.close().unwrap();
        } else {
            store.sync().unwrap();
            drop(store);
        }
        store = open(&disk, quotas, START);
        assert_eq!((store.usage().bytes, store.usage_of("ada").bytes), (used, used));
    }
    // A lowered window lets them go at once.
    store
        .update_mailbox("a", Changes::default(), |policy| policy.dedup_window_ms = 1_000, at(2_000))
        .unwrap();
    while store.tick(at(2_000)) {}
    let left = store.mailbox("a", at(2_000)).unwrap().bytes;
    assert_eq!((store.usage().bytes, store.usage_of("ada").bytes), (left, left));
    assert!(!store.send_once("a", "000", &message, at(2_001)).unwrap().duplicate);
    store.remove_mailbox("a", at(2_001)).unwrap();
    assert_eq!((store.usage().bytes, store.usage_of("ada").bytes), (0, 0));
    while store.tick(at(2_001)) {}
    assert_eq!(store.sleep_ms(at(2_001)), None);
}

/// Sends a message of 100 bytes.
fn plain(store: &mut Store, key: &str, delay_ms: u64) {
    let payload = [b'x'; 100];
    store.send("a", &Send { key, delay_ms, ..Send::new(&payload) }, START).unwrap();
}

/// Each way in which messages come and go, with the number that is left; the counters say the same now, after a kill
/// and after an orderly end.
#[test]
fn counters_are_right_after_everything_that_changes_them() {
    type Case = (&'static str, Policy, fn(&mut Store), u64);
    let cases: [Case; 7] = [
        (
            "eviction",
            Policy { max_msgs: 2, ..Policy::default() },
            |s| {
                (0..5).for_each(|_| plain(s, "", 0));
            },
            2,
        ),
        (
            "latest",
            Policy { latest: true, ..Policy::default() },
            |s| {
                (0..5).for_each(|_| plain(s, "", 0));
            },
            1,
        ),
        (
            "a key",
            Policy::default(),
            |s| {
                (0..5).for_each(|_| plain(s, "k", 0));
            },
            1,
        ),
        (
            "a delay",
            Policy::default(),
            |s| {
                (0..2).for_each(|_| plain(s, "", 600_000));
            },
            2,
        ),
        (
            "a cancelled delay",
            Policy::default(),
            |s| {
                (0..2).for_each(|_| plain(s, "", 600_000));
                s.cancel_delayed("a", 0, START).unwrap();
            },
            1,
        ),
        (
            "a deletion",
            Policy::default(),
            |s| {
                (0..3).for_each(|_| plain(s, "", 0));
                s.delete("a", 1, START).unwrap();
            },
            2,
        ),
        (
            "a purge",
            Policy::default(),
            |s| {
                (0..2).for_each(|_| plain(s, "", 600_000));
                (0..2).for_each(|_| plain(s, "", 0));
                s.purge("a", START).unwrap();
                plain(s, "", 0);
            },
            1,
        ),
    ];
    for (case, policy, run, left) in cases {
        let disk = SimDisk::new();
        let mut store = open(&disk, Quotas::DEFAULT, START);
        let policy = Policy { owner: Some("ada".into()), ..policy };
        store
            .create_mailbox(&NewMailbox { address: "a", policy, ..Default::default() }, START)
            .unwrap();
        create(&mut store, "b", Some("bob")).unwrap();
        run(&mut store);
        let bytes = store.mailbox("a", START).unwrap().bytes;
        let key = u64::from(case == "a key");
        assert_eq!(bytes, left * (stored(100) + key), "{case}");
        let check = |store: &Store| {
            assert_eq!(store.usage(), Amount { mailboxes: 2, bytes }, "{case}");
            assert_eq!(store.usage_of("ada"), Amount { mailboxes: 1, bytes }, "{case}");
            assert_eq!(store.usage_of("bob"), Amount { mailboxes: 1, bytes: 0 }, "{case}");
        };
        check(&store);
        store.sync().unwrap();
        drop(store);
        let store = open(&disk, Quotas::DEFAULT, START);
        check(&store);
        store.close().unwrap();
        let mut store = open(&disk, Quotas::DEFAULT, START);
        check(&store);
        store.remove_mailbox("a", START).unwrap();
        assert_eq!(store.usage(), Amount { mailboxes: 1, bytes: 0 }, "{case}");
        assert_eq!(store.usage_of("ada"), Amount::default(), "{case}");
    }
}

#[test]
fn a_delayed_message_fits_into_what_it_evicts() {
    let quotas = Quotas { max_store_bytes: 2 * stored(100), ..Quotas::DEFAULT };
    let mut store = open(&SimDisk::new(), quotas, START);
    let policy = Policy { max_bytes: 2 * stored(100), ..Policy::default() };
    store
        .create_mailbox(&NewMailbox { address: "a", policy, ..Default::default() }, START)
        .unwrap();
    plain(&mut store, "", 0);
    plain(&mut store, "", 0);
    plain(&mut store, "", 600_000);
    assert_eq!(store.mailbox("a", START).unwrap().messages, 1);
}

#[test]
fn as_many_fetches_wait_as_allowed() {
    let quotas = Quotas {
        max_waits: 5,
        max_waits_per_user: 3,
        max_waits_per_connection: 2,
        ..Quotas::DEFAULT
    };
    let mut store = open(&SimDisk::new(), quotas, START);
    create(&mut store, "a", None).unwrap();
    let wait = |store: &mut Store, conn: u64, user: Option<&str>| {
        let user = user.map(Arc::from);
        let request = Fetch { conn, user, wait_ms: 60_000, ..Fetch::group("a", "g", 1) };
        match store.fetch_within_quotas(request, Waits::default(), START)? {
            FetchOutcome::Waiting(waiter) => Ok::<u64, Error>(waiter),
            FetchOutcome::Messages(_) => panic!("it did not wait"),
        }
    };
    let ada = Some("ada");
    let first = wait(&mut store, 1, ada).unwrap();
    wait(&mut store, 1, ada).unwrap();
    let own = "quota max_waiting_fetches_per_connection reached: at most 2 FETCHes that wait";
    assert_eq!(refusal(wait(&mut store, 1, ada)), own);
    wait(&mut store, 2, ada).unwrap();
    let user = "quota max_waiting_fetches_per_user reached: at most 3 FETCHes that wait";
    assert_eq!(refusal(wait(&mut store, 2, ada)), user);
    // Those of nobody count altogether only.
    wait(&mut store, 2, None).unwrap();
    wait(&mut store, 3, None).unwrap();
    let all = "quota max_waiting_fetches reached: at most 5 FETCHes that wait";
    assert_eq!(refusal(wait(&mut store, 3, None)), all);
    // One that does not wait is never refused.
    let now = Fetch { conn: 1, user: Some("ada".into()), ..Fetch::all("a") };
    store.fetch_within_quotas(now, Waits::default(), START).unwrap();
    // There is room again after a wait that was given up, after the end of a connection, and after the time.
    assert!(store.cancel_wait(first));
    wait(&mut store, 3, ada).unwrap();
    store.disconnect(1, START);
    assert_eq!(store.waits_of_user("ada"), 2);
    wait(&mut store, 1, ada).unwrap();
    assert_eq!(refusal(wait(&mut store, 4, ada)), all);
    store.tick(at(60_001));
    assert_eq!((store.waiting(), store.waits_of_user("ada")), (0, 0));
    wait(&mut store, 1, ada).unwrap();
}

/// A fetch that could wait is no wait where there are messages; and one that is refused makes no group, nor has one begin
/// anew.
#[test]
fn at_the_quota_of_waits_messages_that_are_there_are_given_and_nothing_else_changes() {
    let quotas = Quotas { max_waits: 1, ..Quotas::DEFAULT };
    let mut store = open(&SimDisk::new(), quotas, START);
    create(&mut store, "a", None).unwrap();
    create(&mut store, "empty", None).unwrap();
    let request = |address: &str, group: Option<(&str, bool)>| {
        let group = group.map(|(name, force)| GroupFetch {
            name: name.to_owned(),
            member: MemberId::Conn,
            force,
        });
        Fetch { group, wait_ms: 60_000, max_msgs: 10, ..Fetch::all(address) }
    };
    let full = "quota max_waiting_fetches reached: at most 1 FETCHes that wait";
    let count = |store: &mut Store, request: Fetch| match store.fetch_within_quotas(
        request,
        Waits::default(),
        START,
    ) {
        Ok(FetchOutcome::Messages(batch)) => Ok(batch.len()),
        Ok(FetchOutcome::Waiting(_)) => panic!("it waits"),
        Err(error) => Err(error.to_string()),
    };
    let waiting =
        store.fetch_within_quotas(request("empty", None), Waits::default(), START).unwrap();
    assert!(matches!(waiting, FetchOutcome::Waiting(_)));
    send(&mut store, "a", 10).unwrap();
    send(&mut store, "a", 10).unwrap();
    for group in [None, Some(("g", false)), Some(("h", true))] {
        assert_eq!(count(&mut store, request("a", group)), Ok(2), "{group:?}");
    }
    let ack = Ack { address: "a", group: "g", msg_ids: &[1], kind: AckKind::Done { only: false } };
    store.ack(&ack, START).unwrap();
    assert_eq!(count(&mut store, request("a", Some(("g", false)))), Err(full.to_owned()));
    for group in [None, Some(("g", false)), Some(("h", true))] {
        assert_eq!(count(&mut store, request("empty", group)), Err(full.to_owned()), "{group:?}");
    }
    let latest = Fetch { start: Start::Latest, ..request("a", Some(("g", true))) };
    assert_eq!(count(&mut store, latest), Err(full.to_owned()));
    assert_eq!(store.mailbox("empty", START).unwrap().groups, []);
    // It did not begin anew: what it was given is given again to nobody.
    send(&mut store, "a", 10).unwrap();
    assert_eq!(count(&mut store, request("a", Some(("g", false)))), Ok(1));
    let missing = count(&mut store, request("none", Some(("g", false))));
    assert_eq!(missing, Err("mailbox none does not exist".to_owned()));
}
