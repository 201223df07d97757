//! The bytes of a lane: as documented, and under damage.

use mq9_core::log::Lsn;
use mq9_core::mailbox::{Entry, Lane};
use proptest::prelude::*;
use proptest::sample::Index;

use super::{encoded, entries, lane_of};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn decoding_random_bytes_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = Lane::decode(&bytes);
    }

    #[test]
    fn decoding_random_words_gives_a_sound_lane_or_nothing(
        live in 0..6_u64,
        words in prop::collection::vec(prop_oneof![0..4_u64, any::<u64>()], 0..24),
    ) {
        let mut bytes = live.to_le_bytes().to_vec();
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        if let Some(lane) = Lane::decode(&bytes) {
            assert_sound(&lane, &bytes);
        }
    }

    #[test]
    fn decoding_damaged_bytes_gives_a_sound_lane_or_nothing(
        ids in prop::collection::btree_set(0..5_000_u64, 0..1_500),
        flips in prop::collection::vec((any::<Index>(), 0..8_u8), 1..4),
    ) {
        let mut bytes = encoded(&lane_of(ids).snapshot());
        for (byte, bit) in flips {
            let at = byte.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        if let Some(lane) = Lane::decode(&bytes) {
            assert_sound(&lane, &bytes);
        }
    }
}

/// Whatever decodes is a lane in order that the same bytes are made of again, or bytes of the same entries if some
/// were not packed.
fn assert_sound(lane: &Lane, bytes: &[u8]) {
    let all = entries(lane);
    assert!(all.windows(2).all(|pair| pair[0].msg_id < pair[1].msg_id));
    assert_eq!(all.len(), lane.len());
    assert!(all.iter().all(|e| lane.get(e.msg_id) == Some(*e)));
    let encoded = encoded(&lane.snapshot());
    assert!(encoded == bytes || has_plain_chunk(bytes));
    let again = Lane::decode(&encoded).expect("what was encoded decodes");
    assert_eq!(entries(&again), all);
}

/// True if the entries of some chunk are not packed; of bytes that decode.
fn has_plain_chunk(bytes: &[u8]) -> bool {
    let mut rest = &bytes[8..];
    while let Some((header, entries)) = rest.split_first_chunk::<24>() {
        let packed = u32::from_le_bytes([header[20], header[21], header[22], header[23]]);
        if packed == 0 {
            return true;
        }
        rest = &entries[packed as usize..];
    }
    false
}

#[test]
fn truncated_or_extended_bytes_do_not_decode() {
    let bytes = encoded(&lane_of((0..1_500).map(|id| id * 3)).snapshot());
    for len in 0..bytes.len() {
        assert!(Lane::decode(&bytes[..len]).is_none(), "{len} bytes");
    }
    for extra in 1..100 {
        let mut longer = bytes.clone();
        longer.resize(bytes.len() + extra, 0);
        assert!(Lane::decode(&longer).is_none());
    }
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Two chunks: 10, 11 and then 1 << 40. The last time is a step back. As written before entries were packed.
fn golden_words() -> Vec<u64> {
    vec![
        3, // entries
        10,
        5_000,
        2, // chunk: base_id, base_ms, entries
        0x0000_00C8_0000_0000,
        0x0000_0001_0000_0040,
        0x0000_0000_0000_0007,
        0x0000_00C9_0000_0001,
        0x0000_0001_0000_0108,
        0x0000_0000_0000_0203,
        1 << 40,
        4_998,
        1,
        0x0000_00CA_0000_0000,
        0x0000_0000_0000_0000,
        0x0000_0000_0000_00FF,
    ]
}

/// The same as written today.
fn golden_bytes() -> Vec<u8> {
    let chunk = |base_id: u64, base_ms: u64, count: u32, packed: &[u8]| {
        let mut bytes = bytes_of(&[base_id, base_ms]);
        bytes.extend(count.to_le_bytes());
        bytes.extend((packed.len() as u32).to_le_bytes());
        bytes.extend(packed);
        bytes
    };
    #[rustfmt::skip]
    let first = [
        // id from 0; length from 0, with its sign; place from 0; time and flags from 0
        0x00, 0x90, 0x03, 0x80, 0x81, 0x80, 0x80, 0x20, 0x0E,
        // the next id; one longer; right behind; two milliseconds later, flags 3
        0x00, 0x02, 0x00, 0xF8, 0x07,
    ];
    let second = [0x00, 0x94, 0x03, 0x00, 0xFE, 0x03];
    [bytes_of(&[3]), chunk(10, 5_000, 2, &first), chunk(1 << 40, 4_998, 1, &second)].concat()
}

fn golden_entries() -> Vec<Entry> {
    let entry = |msg_id, at, len, create_ms, flags| Entry { msg_id, at, len, create_ms, flags };
    vec![
        entry(10, Lsn::new(1, 64), 200, 5_000, 7),
        entry(11, Lsn::new(1, 264), 201, 5_002, 3),
        entry(1 << 40, Lsn::NONE, 202, 4_998, 255),
    ]
}

#[test]
fn the_bytes_are_those_of_the_format() {
    let mut lane = Lane::default();
    golden_entries().into_iter().for_each(|entry| lane.put(entry));
    assert_eq!(encoded(&lane.snapshot()), golden_bytes());
    for bytes in [golden_bytes(), bytes_of(&golden_words())] {
        let decoded = Lane::decode(&bytes).expect("it decodes");
        assert_eq!(entries(&decoded), golden_entries());
    }
    assert_eq!(encoded(&Lane::default().snapshot()), [0; 8]);
    assert!(Lane::decode(&[0; 8]).expect("it decodes").is_empty());
}

#[test]
fn malformed_bytes_do_not_decode() {
    let damaged = |at: usize, word: u64| {
        let mut words = golden_words();
        words[at] = word;
        Lane::decode(&bytes_of(&words))
    };
    assert!(damaged(0, 3).is_some());
    for count in [0, 2, 4, u64::MAX, u64::MAX / 24] {
        assert!(damaged(0, count).is_none(), "{count} entries in the lane");
    }
    for count in [0, 1, 3, 513, 2 | 1 << 32, u64::MAX] {
        assert!(damaged(3, count).is_none(), "{count} entries in the chunk");
    }
    assert!(damaged(7, 0).is_none(), "an id twice");
    assert!(damaged(4, 2).is_none(), "ids descend");
    assert!(damaged(10, 11).is_none(), "the second chunk begins with the last id of the first");
    assert!(damaged(10, 12).is_some());
    assert!(damaged(10, 9).is_none(), "the second chunk is before the first");
    assert!(damaged(1, u64::MAX).is_none(), "the id overflows");
    let last = vec![1, u64::MAX, 0, 1, 0, 0, 0];
    assert!(Lane::decode(&bytes_of(&last)).is_some());
}

#[test]
fn malformed_packed_bytes_do_not_decode() {
    let changed = |at: usize, to: &[u8]| {
        let mut bytes = golden_bytes();
        bytes[at..at + to.len()].copy_from_slice(to);
        Lane::decode(&bytes)
    };
    // The first chunk: its count at 24, how many bytes follow at 28, its entries from 32 on.
    assert!(changed(28, &[14]).is_some());
    for (packed, why) in
        [(13, "the last entry is cut"), (15, "a byte is left"), (255, "past the end")]
    {
        assert!(changed(28, &[packed]).is_none(), "{why}");
    }
    for count in [0, 1, 3] {
        assert!(changed(24, &[count]).is_none(), "{count} entries in the chunk");
    }
    assert!(changed(32, &[0xFF; 14]).is_none(), "a number without an end");
    assert!(changed(42, &[0x03]).is_some(), "shorter than the one before");
    // One entry of each: lengths below 0 and above 32 bits, ids above 32 bits.
    let one = |packed: &[u8]| {
        let head = 1_u64 | (packed.len() as u64) << 32;
        Lane::decode(&[&bytes_of(&[1, 0, 0, head])[..], packed].concat())
    };
    assert!(one(&[0, 0, 0, 0]).is_some());
    assert!(one(&[0, 1, 0, 0]).is_none(), "a length below 0");
    assert!(one(&[0, 2, 0, 0]).is_some());
    assert!(one(&[0, 0x82, 0, 0, 0]).is_none(), "a byte that the number does not need");
    let most = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF];
    assert!(one(&[&[0, 0][..], &most, &[0x01, 0]].concat()).is_some(), "the greatest number");
    assert!(one(&[&[0, 0][..], &most, &[0x03, 0]].concat()).is_none(), "more than 64 bits");
    assert!(one(&[0, 0xFE, 0xFF, 0xFF, 0xFF, 0x1F, 0, 0]).is_some(), "the greatest length");
    assert!(one(&[0, 0x80, 0x80, 0x80, 0x80, 0x20, 0, 0]).is_none(), "a length too great");
    assert!(one(&[0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 0, 0, 0]).is_some(), "the greatest id");
    assert!(one(&[0x80, 0x80, 0x80, 0x80, 0x10, 0, 0, 0]).is_none(), "an id too great");
}

#[test]
fn messages_in_a_row_take_few_bytes() {
    let mut lane = Lane::default();
    for id in 0..100_000_u64 {
        // Two in turns of one lane each, some in a millisecond.
        let at = Lsn::new(1, 64 + 300 * id as u32);
        lane.put(Entry {
            msg_id: id,
            at,
            len: 150,
            create_ms: 1_700_000_000_000 + id / 100,
            flags: 0,
        });
    }
    let bytes = encoded(&lane.snapshot());
    assert!(bytes.len() < 6 * lane.len(), "{} bytes", bytes.len());
}

#[test]
fn a_chunk_of_more_than_512_entries_does_not_decode() {
    for (count, decodes) in [(512, true), (513, false)] {
        let mut words = vec![count, 0, 0, count];
        words.extend((0..count).flat_map(|id| [id, 0, 0]));
        assert_eq!(Lane::decode(&bytes_of(&words)).is_some(), decodes);
    }
}
