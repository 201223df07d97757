//! A client's bytes in, its replies out: SEND, FETCH and ACK through broker and store, without
//! sockets and without syncs.

// The macros of criterion make a public function without a comment.
#![allow(missing_docs)]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use mq9_benches::{clock, create, open, payload, scratch};
use mq9_core::broker::{Broker, Called, ConnId, Desk, DeskCall, Event, Limits, Permissions, Terms};
use mq9_core::post::{Post, PostOptions};
use mq9_core::store::Store;
use mq9_core::time::Now;

const CONNECT: &[u8] = b"CONNECT {}\r\nSUB _INBOX.Q0ryt8nXsLRvrPBbFfNSUD.* 1\r\n";

struct Counter<'a>(&'a mut Post, &'a mut Store, Now);

impl Desk for Counter<'_> {
    fn call(&mut self, call: &DeskCall<'_>) -> Called {
        self.0.call(self.1, call, self.2)
    }

    fn refuse(&mut self, call: &DeskCall<'_>, problem: &str) {
        self.0.refuse(call, problem);
    }

    fn enforce(&mut self, cid: u64, rules: &Permissions) -> Vec<Vec<u8>> {
        self.0.enforce(self.1, cid, rules)
    }

    fn has_room(&self, cid: u64, most: usize) -> bool {
        self.0.has_room(cid, most)
    }
}

/// A broker with one client.
struct Server {
    broker: Broker,
    post: Post,
    store: Store,
    client: ConnId,
}

impl Server {
    fn new(mut store: Store) -> Self {
        create(&mut store, "bench", clock()).expect("a new mailbox");
        let mut broker = Broker::new(Limits::default(), 1, 0);
        let client = broker.open(false, 0);
        broker.feed(client, CONNECT, &mut (), 0);
        while let Some(event) = broker.next_event() {
            if let Event::Connect { conn, .. } = event {
                let terms = Terms { verbose: false, pedantic: false, ..Terms::default() };
                broker.accept(conn, terms, &mut (), 0);
            }
        }
        Self { broker, post: Post::new(PostOptions::default()), store, client }
    }

    /// One chunk and everything it brings about; returns the bytes of the replies.
    fn round(&mut self, chunk: &[u8]) -> usize {
        let now = clock();
        let mut counter = Counter(&mut self.post, &mut self.store, now);
        self.broker.feed(self.client, chunk, &mut counter, 0);
        self.post.collect(&mut self.store, now);
        self.store.flush().expect("space");
        let acknowledged = self.store.acknowledged();
        while let Some(reply) = self.post.next_reply(acknowledged) {
            reply.publish(|answer_to, headers, payload| {
                let (cid, subject) = (reply.cid, &reply.subject);
                self.broker.answer(cid, subject, answer_to, headers, payload, &mut ());
            });
        }
        while self.broker.next_dirty().is_some() {}
        let bytes = self.broker.output(self.client).len();
        self.broker.written(self.client, bytes);
        bytes
    }
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
