//! A message of the cluster's stream: no bytes make `Batch::decode` panic or take much memory, and what it accepts is
//! what `encode` writes. Damage is found wherever it is.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mq9_cluster::{Batch, Config, History, Member, Position, Recovered, Writer};

fuzz_target!(|data: &[u8]| {
    take(data);
    // Most inputs end at the checksum: the same bytes with the right one.
    let mut sound = [b"mq9b\x01", data].concat();
    let checksum = crc32c::crc32c(&sound);
    sound.extend_from_slice(&checksum.to_le_bytes());
    take(&sound);
});

fn take(message: &[u8]) {
    let decoded = Batch::decode(message);
    if let Ok(batch) = &decoded {
        assert_eq!(batch.encode(), message, "another message for the same batch");
        let mut damaged = message.to_vec();
        let at = message.len() / 2;
        damaged[at] ^= 0x10;
        assert_ne!(Batch::decode(&damaged).as_ref(), Ok(batch), "damage at {at}");
        let mut history = History::behind(Position::default());
        let _ = history.take(1, batch, message);
    }
    // A member that is told so stands still or goes on, and nothing else.
    let config = Config::new(7, 1, Writer { node: 1, incarnation: 1 }, 1);
    let mut member = Member::new(config, Recovered::default(), 0);
    member.delivered(1, message, 0);
    for now in [10, 5_000, 10_000] {
        member.tick(now);
        while member.next_action().is_some() {}
    }
    assert!(member.position().sequence <= 1);
}
