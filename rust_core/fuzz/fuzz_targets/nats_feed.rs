//! The bytes of a client: no input makes the broker panic, and it does not matter where they were
//! split. Input: lengths of pieces, then the bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mq9_core::broker::{Broker, ConnId, Event, Limits, Terms};

fuzz_target!(|data: &[u8]| {
    let Some((&count, rest)) = data.split_first() else { return };
    let (pieces, input) = rest.split_at(usize::from(count % 16).min(rest.len()));
    let whole = run(&[input]);
    let mut parts = Vec::new();
    let mut left = input;
    for &piece in pieces {
        let (part, more) = left.split_at(usize::from(piece).min(left.len()));
        parts.push(part);
        left = more;
    }
    parts.push(left);
    assert_eq!(run(&parts), whole);
    if input.len() < 256 {
        assert_eq!(run(&input.chunks(1).collect::<Vec<_>>()), whole);
    }
});

/// What the client and another one hear, and how the client's connection ended.
fn run(parts: &[&[u8]]) -> (Vec<u8>, Vec<u8>, Option<bool>) {
    let limits = Limits { max_payload: 512, max_control_line: 64, ..Limits::default() };
    let mut broker = Broker::new(limits, 1, 0);
    broker.serve(0, b"$SYS.>");
    let (other, client) = (broker.open(false, 0), broker.open(false, 0));
    let mut closed = None;
    broker.feed(other, b"CONNECT {}\r\nSUB a.> 1\r\nSUB b q 2\r\n", &mut (), 0);
    settle(&mut broker, client, &mut closed);
    let mut heard = Vec::new();
    for part in parts {
        broker.feed(client, part, &mut (), 0);
        settle(&mut broker, client, &mut closed);
        heard.extend_from_slice(broker.unwritten(client));
        broker.written(client, usize::MAX);
    }
    let others = broker.unwritten(other).to_vec();
    broker.remove(client);
    broker.remove(other);
    assert_eq!((broker.connections(), broker.subscriptions()), (0, 0));
    (heard, others, closed)
}

fn settle(broker: &mut Broker, client: ConnId, closed: &mut Option<bool>) {
    while let Some(event) = broker.next_event() {
        match event {
            Event::Connect { conn, options } => {
                let terms = Terms {
                    verbose: options.contains(&b'v'),
                    pedantic: options.contains(&b'p'),
                    echo: !options.contains(&b'e'),
                    headers: !options.contains(&b'h'),
                    no_responders: !options.contains(&b'n'),
                    ..Terms::default()
                };
                broker.accept(conn, terms, &mut (), 0);
            }
            Event::Trace(trace) => broker.publish_trace(&trace, "T"),
            Event::Close { conn, abort } if conn == client => *closed = Some(abort),
            _ => {}
        }
    }
}
