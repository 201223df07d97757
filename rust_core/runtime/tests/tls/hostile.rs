//! Clients that do not keep to the protocol: an error, little memory, no panic.

use mq9_runtime::tls::{TlsError, TlsLayer};
use rustls::version::{TLS12, TLS13};

use crate::world::{Numbers, World, connected};

/// Feeds all of it; the error and after how many bytes it came.
fn error_in(layer: &mut TlsLayer, bytes: &[u8], piece: usize) -> Option<(TlsError, usize)> {
    let mut plain = Vec::new();
    for (count, part) in bytes.chunks(piece).enumerate() {
        if let Err(error) = layer.receive(part, &mut plain) {
            assert_eq!(layer.receive(part, &mut plain), Err(error.clone()));
            return Some((error, count * piece));
        }
    }
    assert!(plain.is_empty());
    None
}

fn record(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
    [&[kind, 3, 3, length[0], length[1]], payload].concat()
}

#[test]
fn plain_text_is_an_error_at_once() {
    let world = World::new();
    for text in
        [b"CONNECT {}\r\nPING\r\n".as_slice(), b"GET / HTTP/1.1\r\n\r\n", &[0; 64], &[0xff; 64]]
    {
        let mut layer = world.layer();
        let (error, _) = error_in(&mut layer, text, 64).unwrap();
        assert!(matches!(error, TlsError::Protocol(_)), "{error}");
        let mut alert = Vec::new();
        layer.take_pending(&mut alert);
        assert_eq!(alert[0], 21, "an alert");
    }
}

#[test]
fn random_bytes_never_pass_for_a_handshake() {
    let world = World::new();
    for seed in 0..2000 {
        let mut numbers = Numbers::new(seed);
        let count = numbers.below(2000);
        let mut bytes = numbers.bytes(count);
        if seed % 2 == 0 {
            bytes = record(22, &bytes);
        }
        let mut layer = world.layer();
        let piece = 1 + numbers.below(500);
        error_in(&mut layer, &bytes, piece);
        assert!(layer.is_handshaking());
    }
}

#[test]
fn a_handshake_with_a_wrong_byte_does_not_complete() {
    let world = World::new();
    for version in [&TLS12, &TLS13] {
        let mut refused = 0;
        for seed in 0..300 {
            let mut numbers = Numbers::new(seed);
            let (mut layer, mut client) =
                (world.layer(), world.client_with(&[version], None, None));
            let mut plain = Vec::new();
            // In the first or in the second flight.
            let flight = seed % 2;
            for now in 0..4 {
                let mut wire = client.output();
                if now == flight && !wire.is_empty() {
                    let wrong = numbers.below(wire.len());
                    wire[wrong] ^= 1 << numbers.below(8);
                }
                if layer.receive(&wire, &mut plain).is_err() {
                    refused += 1;
                    break;
                }
                let mut answer = Vec::new();
                layer.take_pending(&mut answer);
                if client.hears(&answer).is_err() {
                    break;
                }
            }
            assert!(plain.is_empty());
        }
        assert!(refused > 50, "{refused}");
    }
}

#[test]
fn a_handshake_that_stops_is_no_error_and_no_connection() {
    let world = World::new();
    let hello = world.client().output();
    for end in 0..hello.len() {
        let mut layer = world.layer();
        assert_eq!(error_in(&mut layer, &hello[..end], usize::MAX >> 1), None);
        assert!(layer.is_handshaking() && !layer.has_pending());
    }
}

#[test]
fn a_changed_record_is_noticed_and_what_came_before_it_is_kept() {
    let world = World::new();
    let (mut layer, mut client) = connected(&world);
    let mut wire = client.says(b"one");
    let good = wire.len();
    wire.extend(client.says(b"two"));
    wire[good + 7] ^= 1;
    let third = client.says(b"three");
    let mut plain = Vec::new();
    let error = layer.receive(&wire, &mut plain).unwrap_err();
    assert_eq!(error, TlsError::Protocol(rustls::Error::DecryptError));
    assert_eq!(plain, b"one");
    let mut alert = Vec::new();
    layer.take_pending(&mut alert);
    let heard = client.hears(&alert).unwrap_err();
    assert_eq!(heard, rustls::Error::AlertReceived(rustls::AlertDescription::BadRecordMac));
    assert_eq!(layer.send(b"x", &mut Vec::new()), Err(TlsError::Closed));
    // Nothing that follows is taken for something.
    layer.receive(&third, &mut plain).unwrap_err();
    assert_eq!(plain, b"one");
}

#[test]
fn a_replayed_record_is_noticed() {
    let world = World::new();
    let (mut layer, mut client) = connected(&world);
    let wire = client.says(b"pay");
    let mut plain = Vec::new();
    layer.receive(&wire, &mut plain).unwrap();
    layer.receive(&wire, &mut plain).unwrap_err();
    assert_eq!(plain, b"pay");
}

#[test]
fn a_handshake_message_without_an_end_is_an_error() {
    let world = World::new();
    // A client hello that says it has the most there can be, in small records.
    let mut bytes = record(22, &[1, 0x00, 0xff, 0xff]);
    for _ in 0..100_000 {
        bytes.extend(record(22, b"x"));
    }
    for piece in [7, 1000, 60_000] {
        let (error, after) = error_in(&mut world.layer(), &bytes, piece).unwrap();
        assert_eq!(error, TlsError::MessageTooLong { limit: 96 * 1024 });
        assert!(after < 200_000, "{after}");
    }
    // One that is longer than there can be is refused by its first bytes.
    let (error, after) =
        error_in(&mut world.layer(), &record(22, &[1, 0xff, 0xff, 0xff]), 100).unwrap();
    assert!(matches!(error, TlsError::Protocol(_)), "{error}");
    assert_eq!(after, 0);
}

#[test]
fn records_that_say_nothing_do_not_go_on() {
    let world = World::new();
    for (kind, payload) in
        [(22, b"".as_slice()), (20, b"\x01"), (21, b"\x01\x5a"), (23, b"x"), (24, b"x")]
    {
        let bytes = record(kind, payload).repeat(50_000);
        let (error, after) = error_in(&mut world.layer(), &bytes, 100).unwrap();
        assert!(matches!(error, TlsError::Protocol(_)), "{kind}: {error}");
        assert!(after < 1000, "{kind} after {after}");
    }
}

#[test]
fn records_of_nothing_do_not_go_on_after_the_handshake_either() {
    let world = World::new();
    let (mut layer, _client) = connected(&world);
    let bytes = record(20, b"\x01").repeat(1000);
    let (error, after) = error_in(&mut layer, &bytes, 100).unwrap();
    assert!(matches!(error, TlsError::Protocol(_)), "{error}");
    assert!(after < 1000, "{after}");
}
