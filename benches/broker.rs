//! A client's bytes in, its replies out: SEND, FETCH and ACK through the engine that production runs, without
//! sockets and without syncs.

// The macros of criterion make a public function without a comment.
#![allow(missing_docs)]

use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use mq9_benches::{clock, create, open, payload, scratch};
use mq9_core::engine::Engine;
use mq9_core::front::{ConnId, Event, Limits, Terms};
use mq9_core::protocol::WireOptions;
use mq9_core::store::{FairLock, Store};
use mq9_core::time::Moment;

const CONNECT: &[u8] = b"CONNECT {}\r\nSUB _INBOX.Q0ryt8nXsLRvrPBbFfNSUD.* 1\r\n";

/// An engine with one client.
struct Server {
    engine: Engine,
    client: ConnId,
}

impl Server {
    fn new(mut store: Store) -> Self {
        create(&mut store, "bench", clock()).expect("a new mailbox");
        let store = Some(Arc::new(FairLock::new(store)));
        let now = moment();
        let mut engine = Engine::new(Limits::default(), WireOptions::default(), store, 1, now);
        let client = engine.open(1, false, now);
        engine.feed(client, CONNECT, now);
        while let Some(event) = engine.next_event(now) {
            if let Event::Connect { conn, .. } = event {
                let terms = Terms { verbose: false, pedantic: false, ..Terms::default() };
                engine.accept(conn, terms, now);
            }
        }
        Self { engine, client }
    }

    /// One chunk and everything it brings about; returns the bytes of the replies.
    fn round(&mut self, chunk: &[u8]) -> usize {
        let now = moment();
        self.engine.feed(self.client, chunk, now);
        self.engine.settle(now);
        let front = self.engine.front_mut();
        while front.next_dirty().is_some() {}
        let bytes = front.output(self.client).len();
        front.written(self.client, bytes);
        bytes
    }
}

fn moment() -> Moment {
    let now = clock();
    Moment { wall_us: now.wall_ms * 1000, mono_us: now.mono_ms * 1000 }
}

/// `count` requests with reply subjects of their own, as clients make them.
fn requests(subject: &str, body: &[u8], count: usize) -> Vec<u8> {
    let mut chunk = Vec::new();
    for n in 0..count {
        let line = format!(
            "PUB {subject} _INBOX.Q0ryt8nXsLRvrPBbFfNSUD.{:07} {}\r\n",
            n * 7919 % 10_000_000,
            body.len()
        );
        chunk.extend_from_slice(line.as_bytes());
        chunk.extend_from_slice(body);
        chunk.extend_from_slice(b"\r\n");
    }
    chunk
}

fn bench_send(c: &mut Criterion) {
    let mut group = c.benchmark_group("broker/send");
    for (bytes, batch) in [(128, 1), (128, 64), (1024, 64)] {
        let dir = scratch();
        let mut server = Server::new(open(dir.path()).expect("an empty store"));
        let chunk = requests("$mq9.AI.MSG.SEND.bench", &payload(bytes), batch);
        group.throughput(Throughput::Elements(batch as u64));
        group.bench_function(BenchmarkId::new(format!("{bytes} B"), batch), |b| {
            b.iter(|| assert!(server.round(&chunk) > 0));
        });
    }
    group.finish();
}

fn bench_fetch_and_ack(c: &mut Criterion) {
    let mut group = c.benchmark_group("broker/fetch_and_ack");
    for (format, batch) in [("json", 1), ("json", 100), ("raw", 1), ("raw", 100)] {
        let dir = scratch();
        let mut server = Server::new(open(dir.path()).expect("an empty store"));
        let text = "a message of an agent to another ".repeat(4);
        let fill = requests("$mq9.AI.MSG.SEND.bench", text.as_bytes(), 1000);
        let body = format!(
            r#"{{"group_name":"g","deliver":"earliest","config":{{"num_msgs":{batch},"format":"{format}","max_wait_ms":0}}}}"#
        );
        let fetch = requests("$mq9.AI.MSG.FETCH.bench", body.as_bytes(), 1);
        let (mut stored, mut next) = (0, 0);
        group.throughput(Throughput::Elements(batch));
        group.bench_function(BenchmarkId::new(format, batch), |b| {
            b.iter_custom(|iterations| {
                while stored < next + iterations * batch {
                    server.round(&fill);
                    stored += 1000;
                }
                let begin = std::time::Instant::now();
                for _ in 0..iterations {
                    assert!(server.round(&fetch) > 0);
                    next += batch;
                    let last = next - 1;
                    let body = format!(r#"{{"group_name":"g","msg_id":{last}}}"#);
                    let ack = requests("$mq9.AI.MSG.ACK.bench", body.as_bytes(), 1);
                    assert!(server.round(&ack) > 0);
                }
                begin.elapsed()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, bench_send, bench_fetch_and_ack);
criterion_main!(benches);
