//! Every decoder of the formats on disk: no input makes one panic, and what is accepted is encoded to
//! something that means the same. Input: a kind, then the bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mq9_core::consumer::{Consumer, ConsumerPolicy};
use mq9_core::group::Group;
use mq9_core::group::ranges::{DeliveryRanges, IdRanges, encode_deliveries, encode_ids};
use mq9_core::log::{Found, Header, Scan};
use mq9_core::mailbox::{Lane, Policy};
use mq9_core::wire::op::{Message, Op};
use mq9_core::wire::record::{self, Seed};
use mq9_core::wire::section;

/// A few bytes may stand for more ids than fit in memory.
const MOST_IDS: u64 = 1000;

fuzz_target!(|data: &[u8]| {
    let Some((&kind, bytes)) = data.split_first() else { return };
    ops(kind, bytes);
    records(kind, bytes);
    ranges(bytes);
    if let Ok(Some(policy)) = Policy::decode(bytes) {
        let mut encoded = Vec::new();
        policy.encode(&mut encoded);
        assert_eq!(Policy::decode(&encoded), Ok(Some(policy)));
    }
    if let Ok(Some(policy)) = ConsumerPolicy::decode(bytes) {
        let mut encoded = Vec::new();
        policy.encode(&mut encoded);
        assert_eq!(ConsumerPolicy::decode(&encoded), Ok(Some(policy)));
    }
    if let Ok(Some(consumer)) = Consumer::decode(bytes) {
        consumer.check_invariants();
        let mut encoded = Vec::new();
        consumer.snapshot().encode(&mut encoded);
        let again = Consumer::decode(&encoded).ok().flatten().expect("what was encoded decodes");
        let mut twice = Vec::new();
        again.snapshot().encode(&mut twice);
        assert_eq!(twice, encoded);
    }
    if let Some(group) = Group::decode(bytes) {
        let mut encoded = Vec::new();
        group.snapshot().encode(&mut encoded);
        assert_eq!(encoded, bytes);
    }
    if let Some(lane) = Lane::decode(bytes) {
        let mut encoded = Vec::new();
        lane.snapshot().encode(&mut encoded);
        let again = Lane::decode(&encoded).expect("what was encoded decodes");
        assert!(again.iter_from(0).eq(lane.iter_from(0)));
        assert_eq!(lane.iter_from(0).count(), lane.len());
    }
    let _ = Header::decode("fuzz", bytes);
});

fn ops(kind: u8, bytes: &[u8]) {
    if let Ok(Some(op)) = Op::decode(kind, bytes) {
        let mut encoded = Vec::new();
        op.encode(&mut encoded);
        assert!(encoded.len() <= op.max_len(), "{op:?}");
        assert_eq!(Op::decode(kind, &encoded), Ok(Some(op)));
        assert_eq!(op.kind(), kind);
    }
    if let Some(message) = Message::decode(bytes) {
        let mut encoded = Vec::new();
        message.encode(&mut encoded);
        assert_eq!(encoded, bytes);
        assert_eq!(message.encoded_len(), bytes.len());
    }
}

fn records(kind: u8, bytes: &[u8]) {
    let seed = Seed::new(u64::from(kind), 80);
    let _ = record::decode(bytes, seed);
    let mut framed = Vec::new();
    let start = record::begin(&mut framed, kind, 0, 7);
    framed.extend_from_slice(bytes);
    let len = record::finish(&mut framed, start, seed);
    assert_eq!(len as usize, framed.len());
    let body = record::decode(&framed, seed).map(|record| record.body);
    assert_eq!(body, Some(bytes));
    // Scanned as a segment, these bytes end.
    for found in Scan::new(bytes, 1, u64::from(kind), 0) {
        if let Found::Record { record, .. } = found {
            assert!(record.len() <= bytes.len());
        }
    }
    let _ = section::decode(bytes);
    let mut framed = Vec::new();
    section::append(&mut framed, kind, |out| out.extend_from_slice(bytes));
    assert_eq!(section::decode(&framed), Some((kind, bytes)));
}

fn ranges(bytes: &[u8]) {
    if let Some(deliveries) = DeliveryRanges::decode(bytes)
        && deliveries.total() <= MOST_IDS
    {
        let mut encoded = Vec::new();
        encode_deliveries(deliveries.iter(), &mut encoded);
        let again = DeliveryRanges::decode(&encoded).map(|again| again.iter().collect::<Vec<_>>());
        assert_eq!(again, Some(deliveries.iter().collect()));
    }
    if let Some(ids) = IdRanges::decode(bytes)
        && ids.total() <= MOST_IDS
    {
        let mut encoded = Vec::new();
        encode_ids(ids.iter(), &mut encoded);
        let again = IdRanges::decode(&encoded).map(|again| again.iter().collect::<Vec<_>>());
        assert_eq!(again, Some(ids.iter().collect()));
    }
}
