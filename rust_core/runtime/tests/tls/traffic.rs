//! Data in both directions, however it is split.

use rustls::version::{TLS12, TLS13};

use crate::world::{Numbers, World, connected, shake_hands, shake_hands_in};

#[test]
fn any_split_of_the_input_is_the_same() {
    let world = World::new();
    let own = world.authority.issue(|_| ());
    for version in [&TLS12, &TLS13] {
        for seed in 0..40 {
            let mut numbers = Numbers::new(seed);
            // Byte by byte at first.
            let longest = 1 + seed as usize * 20;
            let mut layer = crate::world::layer(&world.verifying());
            let mut client = world.client_with(&[version], None, Some(&own));
            let progress =
                shake_hands_in(&mut layer, &mut client, || 1 + numbers.below(longest)).unwrap();
            assert!(progress.handshake_done);

            let said = numbers.bytes(20_000);
            let mut wire = Vec::new();
            let mut rest = said.as_slice();
            while !rest.is_empty() {
                let (now, later) = rest.split_at((1 + numbers.below(3000)).min(rest.len()));
                wire.extend(client.says(now));
                rest = later;
            }
            let mut heard = Vec::new();
            let mut out = Vec::new();
            let mut answered = Vec::new();
            let mut rest = wire.as_slice();
            while !rest.is_empty() {
                let (now, later) = rest.split_at((1 + numbers.below(longest)).min(rest.len()));
                layer.receive(now, &mut heard).unwrap();
                // An answer in the middle of a record.
                let answer = numbers.bytes(3);
                layer.send(&answer, &mut out).unwrap();
                answered.extend(answer);
                rest = later;
            }
            assert_eq!(heard, said);
            assert_eq!(client.hears(&out).unwrap(), answered);
        }
    }
}

#[test]
fn a_megabyte_goes_each_way() {
    let world = World::new();
    let data = Numbers::new(1).bytes(1 << 20);
    for version in [&TLS12, &TLS13] {
        let mut layer = world.layer();
        let mut client = world.client_with(&[version], None, None);
        shake_hands(&mut layer, &mut client).unwrap();
        let mut plain = Vec::new();
        for piece in client.says(&data).chunks(64 * 1024) {
            let before = plain.len();
            layer.receive(piece, &mut plain).unwrap();
            // What was held before is less than a record.
            assert!(plain.len() - before < piece.len() + 17 * 1024);
        }
        assert!(plain == data);
        // Behind what is there already.
        let mut out = b"before".to_vec();
        layer.send(&data, &mut out).unwrap();
        assert_eq!(&out[..6], b"before");
        assert!(out.len() < data.len() + 6 + 65 * 64);
        assert!(client.hears(&out[6..]).unwrap() == data);
    }
}

#[test]
fn nothing_is_no_record() {
    let world = World::new();
    let (mut layer, mut client) = connected(&world);
    let mut out = Vec::new();
    layer.send(b"", &mut out).unwrap();
    assert!(out.is_empty());
    layer.receive(b"", &mut Vec::new()).unwrap();
    layer.send(b"x", &mut out).unwrap();
    assert_eq!(client.hears(&out).unwrap(), b"x");
}

#[test]
fn a_client_may_change_its_keys() {
    let world = World::new();
    let (mut layer, mut client) = connected(&world);
    for round in 0..20_u8 {
        client.0.refresh_traffic_keys().unwrap();
        let mut plain = Vec::new();
        layer.receive(&client.says(&[round]), &mut plain).unwrap();
        assert_eq!(plain, [round]);
        let mut out = Vec::new();
        layer.send(&plain, &mut out).unwrap();
        assert_eq!(client.hears(&out).unwrap(), [round]);
    }
}
