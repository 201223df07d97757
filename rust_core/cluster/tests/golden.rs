//! Messages of the stream as the first version wrote them: nodes of two versions run side by side while a cluster is
//! upgraded, so what one writes the other must read. A change of these bytes is a change of the format: it needs a new
//! version, and a node that still reads this one.
#![allow(clippy::unwrap_used)]

use mq9_cluster::{Batch, BatchError, Content, Digest, Record, Writer};

const RECORDS: &str = "6d7139620100efcdab896745230107000000050000000000000003000000785634120000000009000000000000\
    00ffeeddccbbaa998877665544332211000200000001400b000000000000000500000001020304052000000000\
    00000000000000000047cfff86";
const CLAIM: &str = "6d7139620101efcdab896745230107000000050000000000000003000000785634120000000009000000000000\
    00ffeeddccbbaa998877665544332211000000000045d8ac91";
const YIELD: &str = "6d7139620102efcdab896745230107000000050000000000000003000000785634120000000009000000000000\
    00ffeeddccbbaa9988776655443322110002000000e1d34d72";

fn batch(content: Content) -> Batch {
    Batch {
        cluster: 0x0123_4567_89ab_cdef,
        generation: 7,
        term: 5,
        writer: Writer { node: 3, incarnation: 0x1234_5678 },
        number: 9,
        before: Digest(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff),
        content,
    }
}

fn records() -> Vec<Record> {
    vec![
        Record { kind: 1, flags: 0x40, mailbox: 11, body: vec![1, 2, 3, 4, 5] },
        Record { kind: 32, flags: 0, mailbox: 0, body: Vec::new() },
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    hex.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn batches_are_written_and_read_as_by_the_first_version() {
    for (written, content) in [
        (RECORDS, Content::Records(records())),
        (CLAIM, Content::Claim),
        (YIELD, Content::Yield(2)),
    ] {
        let batch = batch(content);
        assert_eq!(hex(&batch.encode()), written, "{:?}", batch.content);
        assert_eq!(Batch::decode(&bytes(written)).unwrap(), batch);
    }
}

#[test]
fn a_batch_of_a_later_version_is_told_from_a_damaged_one() {
    let mut later = bytes(CLAIM);
    later[4] = 2;
    let refused = Batch::decode(&later).unwrap_err();
    assert_eq!(refused, BatchError::Version(2));
    assert!(refused.to_string().contains("upgrade this node first"), "{refused}");
    let mut damaged = bytes(CLAIM);
    damaged[20] ^= 1;
    assert_eq!(Batch::decode(&damaged).unwrap_err(), BatchError::Damaged);
}

#[test]
fn the_stream_remembers_a_batch_by_its_writer_and_number() {
    assert_eq!(batch(Content::Claim).id(), "305419896-9");
}
