//! Contents of the golden files, written down by hand.

use mq9_core::mailbox::Policy;
use mq9_core::store::{Fetch, FetchOutcome, Store};
use mq9_sim::SimDisk;

use crate::script::{START, at, full_policy, open};

type Row<'a> = (u64, u8, u64, u64, u64, &'a str, &'a str, &'a [u8], &'a [u8]);

const T: u64 = START.wall_ms;

/// `msg_id`, level, sent, created, expires, key, tags, headers, payload.
const ORDERS: [Row<'_>; 6] = [
    (0, 5, T + 3, T + 3, T + 3_600_003, "k", "t1,t2", b"A: b\r\n", b"zero"),
    (1, 1, T + 4, T + 4, 0, "j", "", b"", b"one"),
    (2, 5, T + 5, T + 5, 0, "", "", b"", b"two"),
    (3, 5, T + 5, T + 5, 0, "", "", b"", b"tri"),
    (5, 5, T + 5, T + 5, 0, "", "", b"", b"fiv"),
    (6, 5, T + 6, T + 200, 0, "", "", b"", b"soon"),
];

/// What `memory.box` was created with; fields that the code of a version did not know are not in its files.
fn policy(version: &str) -> Policy {
    match version {
        "v1" | "v1.1" | "v1.2" | "v1.3" => Policy { group_ttl_ms: 0, owner: None, ..full_policy() },
        "v1.4" => Policy { owner: None, ..full_policy() },
        _ => full_policy(),
    }
}

pub fn check(disk: &SimDisk, version: &str) {
    let mut store = open(disk, at(1_000));
    assert_eq!(store.damage(), []);
    assert_eq!(store.info().mailboxes, 2);
    assert_eq!(store.info().epoch, 2);

    let memory = store.mailbox("memory.box", at(1_000)).unwrap();
    assert_eq!((memory.created_ms, memory.expires_ms), (T + 1, T + 86_400_001));
    assert_eq!((memory.messages, memory.next_id), (0, 65_536));
    assert_eq!(memory.policy, policy(version));

    let orders = store.mailbox("orders", at(1_000)).unwrap();
    assert_eq!((orders.desc.as_str(), orders.created_ms, orders.expires_ms), ("golden", T, 0));
    assert_eq!((orders.next_id, orders.messages, orders.delayed), (7, 6, 1));
    assert_eq!(orders.policy, Policy::default());
    check_messages(&mut store);

    assert_eq!(orders.groups.len(), 2);
    let g = &orders.groups[0];
    assert_eq!((g.name.as_str(), g.outstanding), ("g", 3));
    assert_eq!(g.cursors, [2, 0, 0, 0, 4, 0, 0, 0, 0, 0]);
    let latecomer = &orders.groups[1];
    assert_eq!((latecomer.name.as_str(), latecomer.outstanding), ("latecomer", 1));
    assert_eq!(latecomer.cursors, [2, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    // Delivered again: 0 a second time, 2 a third, 3 a second; then the new ones.
    let given = fetch(&mut store, Fetch::group("orders", "g", 10));
    assert_eq!(given, [(0, 2), (2, 3), (3, 2), (5, 1), (6, 1)]);

    store.tick(at(700_000));
    let orders = store.mailbox("orders", at(700_000)).unwrap();
    assert_eq!((orders.next_id, orders.messages, orders.delayed), (8, 7, 0));
    store.tick(at(3_600_010));
    assert_eq!(store.mailbox("orders", at(3_600_010)).unwrap().messages, 5);
}

fn fetch(store: &mut Store, request: Fetch) -> Vec<(u64, u32)> {
    let FetchOutcome::Messages(batch) = store.fetch(request, at(1_000)).unwrap() else { panic!() };
    batch.iter().map(|(meta, _)| (meta.msg_id, meta.deliveries)).collect()
}

fn check_messages(store: &mut Store) {
    let FetchOutcome::Messages(batch) = store.fetch(Fetch::all("orders"), at(1_000)).unwrap()
    else {
        panic!()
    };
    let mut rows: Vec<Row<'_>> = batch
        .iter()
        .map(|(meta, m)| {
            assert_eq!((meta.msg_id, meta.create_ms), (m.msg_id, m.create_ms));
            assert_eq!((meta.level.number(), m.address), (m.level, "orders"));
            let (id, sent) = (m.msg_id, m.sent_ms);
            (id, m.level, sent, m.create_ms, m.expires_ms, m.key, m.tags, m.headers, m.payload)
        })
        .collect();
    rows.sort_unstable();
    assert_eq!(rows, ORDERS);
}
