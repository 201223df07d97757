//! Batches as bytes: what is written is read again, and nothing else is.

use mq9_cluster::{Batch, BatchError, Content, Differs, Digest, History, Position, Record, Writer};
use proptest::prelude::*;

fn record() -> impl Strategy<Value = Record> {
    (any::<u8>(), any::<u8>(), any::<u64>(), prop::collection::vec(any::<u8>(), 0..40))
        .prop_map(|(kind, flags, mailbox, body)| Record { kind, flags, mailbox, body })
}

fn content() -> impl Strategy<Value = Content> {
    prop_oneof![
        prop::collection::vec(record(), 0..6).prop_map(Content::Records),
        Just(Content::Claim),
        any::<u32>().prop_map(Content::Yield),
    ]
}

fn batch() -> impl Strategy<Value = Batch> {
    let numbers = (any::<u64>(), any::<u32>(), any::<u64>(), any::<u32>(), any::<u64>());
    (numbers, any::<u64>(), any::<u128>(), content()).prop_map(
        |(numbers, number, before, content)| {
            let (cluster, generation, term, node, incarnation) = numbers;
            let writer = Writer { node, incarnation };
            Batch { cluster, generation, term, writer, number, before: Digest(before), content }
        },
    )
}

proptest! {
    #[test]
    fn a_batch_is_read_as_it_was_written(batch in batch()) {
        prop_assert_eq!(Batch::decode(&batch.encode()), Ok(batch));
    }

    #[test]
    fn a_turned_bit_is_noticed(batch in batch(), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let mut message = batch.encode();
        let at = at.index(message.len());
        message[at] ^= 1 << bit;
        prop_assert!(Batch::decode(&message).is_err());
    }

    #[test]
    fn a_cut_batch_is_noticed(batch in batch(), at in any::<prop::sample::Index>()) {
        let message = batch.encode();
        prop_assert!(Batch::decode(&message[..at.index(message.len())]).is_err());
    }

    #[test]
    fn forged_lengths_are_refused(mut message in prop::collection::vec(any::<u8>(), 66..200)) {
        message[..6].copy_from_slice(b"mq9b\x01\x00");
        let checksum = crc32c::crc32c(&message);
        message.extend_from_slice(&checksum.to_le_bytes());
        if let Ok(batch) = Batch::decode(&message) {
            prop_assert_eq!(batch.encode(), message);
        }
    }
}

#[test]
fn a_newer_version_is_named() {
    assert_eq!(Batch::decode(b"mq9b\x02rest"), Err(BatchError::Version(2)));
    assert_eq!(Batch::decode(b"PING"), Err(BatchError::Foreign));
}

#[test]
fn a_claim_leaves_room_for_the_next_one() {
    let claim = |term| {
        let writer = Writer { node: 1, incarnation: 1 };
        let before = Digest::default();
        let content = Content::Claim;
        let batch = Batch { cluster: 7, generation: 1, term, writer, number: 1, before, content };
        History::behind(Position::default()).take(1, &batch, &batch.encode())
    };
    assert_eq!((claim(1), claim(u64::MAX - 1)), (Ok(()), Ok(())));
    assert_eq!((claim(0), claim(u64::MAX)), (Err(Differs), Err(Differs)));
}
