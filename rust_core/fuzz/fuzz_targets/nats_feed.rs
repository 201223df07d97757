//! The bytes of a client through the engine that production runs, with a store behind it: no input makes it panic or
//! disagree with itself, and it does not matter where it was split. Input: lengths of pieces, then the bytes.

#![no_main]

use std::sync::Arc;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use mq9_core::engine::Engine;
use mq9_core::front::{ConnId, Event, Limits, Terms};
use mq9_core::protocol::WireOptions;
use mq9_core::store::{FairLock, NewMailbox, Options, Store};
use mq9_core::time::Moment;
use mq9_sim::SimDisk;

/// A stream, a consumer and messages, for requests to find something.
const STREAM: &[u8] = b"PUB $JS.API.STREAM.CREATE.S 26\r\n{\"name\":\"S\",\"subjects\":[]}\r\n\
    PUB $JS.API.CONSUMER.CREATE.S.c 73\r\n\
    {\"stream_name\":\"S\",\"config\":{\"durable_name\":\"c\",\"ack_policy\":\"explicit\"}}\r\n\
    PUB S 1\r\nx\r\nPUB S 1\r\ny\r\n";

const NOW: Moment = Moment { wall_us: 1_700_000_000_000_000, mono_us: 1_000_000 };

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
    let store = Store::open(Arc::new(SimDisk::new()), Options::default(), 42, NOW.into());
    let store = Arc::new(FairLock::new(store.expect("an empty disk")));
    let new = NewMailbox { address: "m", ..NewMailbox::default() };
    store.lock().create_mailbox(&new, NOW.into()).expect("a new mailbox");
    let options = WireOptions { jetstream: true, ..WireOptions::default() };
    let mut engine = Engine::new(limits, options, Some(Arc::clone(&store)), 1, NOW);
    engine.front_mut().serve(0, b"$SYS.>");
    let (other, client) = (engine.open(1, false, NOW), engine.open(2, false, NOW));
    let mut closed = None;
    engine.feed(other, b"CONNECT {}\r\nSUB a.> 1\r\nSUB b q 2\r\n", NOW);
    engine.feed(other, STREAM, NOW);
    decide(&mut engine, client, &mut closed);
    for part in parts {
        engine.feed(client, part, NOW);
        decide(&mut engine, client, &mut closed);
    }
    settle(&mut engine, &store);
    decide(&mut engine, client, &mut closed);
    let heard = engine.front().unwritten(client).to_vec();
    let others = engine.front().unwritten(other).to_vec();
    engine.remove(client, NOW);
    engine.remove(other, NOW);
    settle(&mut engine, &store);
    assert_eq!((engine.front().connections(), engine.front().subscriptions()), (0, 0));
    assert_eq!(store.lock().waiting(), 0);
    (heard, others, closed)
}

fn settle(engine: &mut Engine, store: &FairLock) {
    engine.settle_or_sync(NOW, &|| Duration::ZERO);
    store.lock().sync().expect("a sound disk");
    engine.settle(NOW);
    engine.check_invariants();
}

fn decide(engine: &mut Engine, client: ConnId, closed: &mut Option<bool>) {
    while let Some(event) = engine.next_event(NOW) {
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
                engine.accept(conn, terms, NOW);
            }
            Event::Request(request) => {
                engine.front_mut().requests_taken(request.cid, 1, request.bytes());
            }
            Event::Close { conn, abort } if conn == client => *closed = Some(abort),
            _ => {}
        }
    }
}
