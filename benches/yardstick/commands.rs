//! How many instructions a message costs from a client's bytes to the bytes of the answers, counted by valgrind where it
//! is installed: mailboxes beside work queues of JetStream, and what nobody stores with JetStream off and on.
//!
//! All of it goes through the engine that production runs, without sockets and without syncs.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use mq9_benches::{Result, clock, create, open, scratch};
use mq9_core::engine::Engine;
use mq9_core::front::{ConnId, Event, Limits, Terms};
use mq9_core::protocol::WireOptions;
use mq9_core::store::FairLock;
use mq9_core::time::Moment;

use crate::table::Table;
use crate::work::counted_by_valgrind;

/// Messages of one round, and of one batch.
const BATCH: usize = 100;
const ROUNDS: usize = 20;
const WARM_UP: usize = 5;
const INBOX: &str = "_INBOX.Q0ryt8nXsLRvrPBbFfNSUD";

/// What is counted: how it is named here and in the table, and whether JetStream is served.
const COUNTED: [(&str, &str, bool); 11] = [
    ("send", "SEND", true),
    ("publish", "PUBLISH to a stream", true),
    ("fetch", "FETCH of 100 and one ACK", true),
    ("pull", "pull of 100 and 100 times +ACK", true),
    ("mailbox", "replay of a mailbox to a subscriber", true),
    ("inbox", "replay of an inbox to a subscriber", true),
    ("off", "PUB that nobody wants, JetStream off", false),
    ("none", "PUB that nobody wants, JetStream without streams", true),
    ("others", "PUB that nobody wants, JetStream with streams of other subjects", true),
    ("turns", "PUB that nobody wants to one of seven subjects in turns, JetStream off", false),
    (
        "apart",
        "PUB that nobody wants to one of seven subjects in turns, JetStream with streams of others",
        true,
    ),
];

/// One row for everything that is counted.
pub fn by_message(table: &mut Table) {
    if Command::new("valgrind").arg("--version").output().is_err() {
        table.note("instructions of a message", "valgrind is not installed".to_owned());
        return;
    }
    for (name, what, _) in COUNTED {
        let dir = scratch();
        let arguments = ["count-commands".as_ref(), name.as_ref(), dir.path().as_os_str()];
        let counted = counted_by_valgrind("*counted_round*", &arguments);
        let each = counted / (ROUNDS * BATCH) as f64;
        table.note(&format!("instructions of a message: {what}"), format!("{each:.0}"));
    }
}

/// What is run under valgrind.
pub fn count(name: &str, dir: &str) -> Result<()> {
    let jetstream = COUNTED.iter().any(|&(known, _, jetstream)| known == name && jetstream);
    let mut server = Server::new(Path::new(dir), jetstream)?;
    if !["off", "none", "turns"].contains(&name) {
        server.make_streams();
    }
    match name {
        "send" => server.repeat(&requests("$mq9.AI.MSG.SEND.bench"), BATCH),
        "publish" => server.repeat(&requests("bench.in"), BATCH),
        "fetch" => server.fetch(),
        "pull" => server.pull(),
        "mailbox" => server.replay("SUB $mq9.AI.MAILBOX.MSG.bench 2\r\n"),
        "inbox" => server.replay("SUB $mq9.AI.INBOX.bench.* 2\r\n"),
        "turns" | "apart" => server.repeat(&messages(7), 0),
        _ => server.repeat(&messages(1), 0),
    }
    Ok(())
}

/// An engine with one client.
struct Server {
    engine: Engine,
    client: ConnId,
}

impl Server {
    fn new(dir: &Path, jetstream: bool) -> Result<Server> {
        let mut store = open(dir)?;
        create(&mut store, "bench", clock())?;
        let store = Some(Arc::new(FairLock::new(store)));
        let options = WireOptions { jetstream, ..WireOptions::default() };
        let now = moment();
        let mut engine = Engine::new(Limits::default(), options, store, 1, now);
        let client = engine.open(1, false, now);
        engine.feed(client, format!("CONNECT {{}}\r\nSUB {INBOX}.* 1\r\n").as_bytes(), now);
        while let Some(event) = engine.next_event(now) {
            if let Event::Connect { conn, .. } = event {
                let terms = Terms { verbose: false, pedantic: false, ..Terms::default() };
                engine.accept(conn, terms, now);
            }
        }
        Ok(Server { engine, client })
    }

    fn make_streams(&mut self) {
        for name in ["bench", "other"] {
            let subjects = format!(r#""subjects":["{name}.in","{name}.in.*"]"#);
            let body = format!(r#"{{"name":"{name}",{subjects},"retention":"workqueue"}}"#);
            let chunk = request(&format!("$JS.API.STREAM.CREATE.{name}"), 0, &body);
            let answer = round(self, &chunk);
            assert!(contains(&answer, b"did_create"), "{}", String::from_utf8_lossy(&answer));
        }
        let config = r#"{"durable_name":"w","ack_policy":"explicit","max_ack_pending":1000}"#;
        let body = format!(r#"{{"stream_name":"bench","config":{config}}}"#);
        let chunk = request("$JS.API.CONSUMER.CREATE.bench.w", 0, &body);
        let answer = round(self, &chunk);
        assert!(contains(&answer, b"created"), "{}", String::from_utf8_lossy(&answer));
    }

    /// The same chunk again and again, with so many answers.
    fn repeat(&mut self, chunk: &[u8], answers: usize) {
        for number in 0..WARM_UP + ROUNDS {
            let output =
                if number < WARM_UP { round(self, chunk) } else { counted_round(self, chunk) };
            let lines = output.split(|&byte| byte == b'\n');
            let came = lines.filter(|line| line.starts_with(b"MSG ")).count();
            assert_eq!(came, answers, "answers");
        }
    }

    fn fetch(&mut self) {
        let fill = requests("$mq9.AI.MSG.SEND.bench");
        (0..WARM_UP + ROUNDS).for_each(|_| drop(round(self, &fill)));
        let config = format!(r#"{{"num_msgs":{BATCH},"format":"raw","max_wait_ms":0}}"#);
        let body = format!(r#"{{"group_name":"g","deliver":"earliest","config":{config}}}"#);
        let fetch = request("$mq9.AI.MSG.FETCH.bench", 0, &body);
        for number in 1..=WARM_UP + ROUNDS {
            let last = number * BATCH - 1;
            let body = format!(r#"{{"group_name":"g","msg_id":{last}}}"#);
            let ack = request("$mq9.AI.MSG.ACK.bench", 1, &body);
            let (of_fetch, of_ack) = if number <= WARM_UP {
                (round(self, &fetch), round(self, &ack))
            } else {
                (counted_round(self, &fetch), counted_round(self, &ack))
            };
            assert!(of_fetch.len() > BATCH * 128 && !of_ack.is_empty(), "a whole batch");
        }
    }

    /// A worker acknowledges what has come and asks for the next batch, in one chunk as clients do.
    fn pull(&mut self) {
        let fill = requests("bench.in");
        (0..WARM_UP + ROUNDS + 1).for_each(|_| drop(round(self, &fill)));
        let body = format!(r#"{{"batch":{BATCH},"expires":30000000000}}"#);
        let next = request("$JS.API.CONSUMER.MSG.NEXT.bench.w", 0, &body);
        let mut given = round(self, &next);
        for number in 0..WARM_UP + ROUNDS {
            let mut chunk = acknowledgements(&given);
            assert_eq!(chunk.iter().filter(|&&byte| byte == b'\n').count(), 2 * BATCH);
            chunk.extend_from_slice(&next);
            given =
                if number < WARM_UP { round(self, &chunk) } else { counted_round(self, &chunk) };
        }
    }

    /// A subscriber is given what is stored, and answers pings as clients do.
    fn replay(&mut self, subscription: &str) {
        let fill = requests("$mq9.AI.MSG.SEND.bench");
        (0..ROUNDS).for_each(|_| drop(round(self, &fill)));
        let mut output = round(self, subscription.as_bytes());
        let mut came = 0;
        while came < ROUNDS * BATCH || contains(&output, b"PING\r\n") {
            came += output
                .split(|&byte| byte == b'\n')
                .filter(|line| line.starts_with(b"MSG $mq9."))
                .count();
            let answer: &[u8] = if contains(&output, b"PING\r\n") { b"PONG\r\n" } else { b"" };
            output = counted_round(self, answer);
        }
        assert_eq!(came, ROUNDS * BATCH, "messages that came");
    }
}

/// One chunk and everything it brings about; returns the replies.
fn round(server: &mut Server, chunk: &[u8]) -> Vec<u8> {
    let now = moment();
    server.engine.feed(server.client, chunk, now);
    server.engine.settle(now);
    let front = server.engine.front_mut();
    while front.next_dirty().is_some() {}
    let output = front.output(server.client).to_vec();
    front.written(server.client, output.len());
    output
}

#[inline(never)]
fn counted_round(server: &mut Server, chunk: &[u8]) -> Vec<u8> {
    round(server, chunk)
}

/// Acknowledges every message of these.
fn acknowledgements(given: &[u8]) -> Vec<u8> {
    let mut chunk = Vec::new();
    for line in given.split(|&byte| byte == b'\n') {
        let mut words = line.split(|&byte| byte == b' ');
        let reply = if words.next() == Some(b"MSG") { words.nth(2) } else { None };
        if let Some(reply) = reply.filter(|reply| reply.starts_with(b"$JS.ACK.")) {
            chunk.extend_from_slice(&[b"PUB ", reply, b" 4\r\n+ACK\r\n"].concat());
        }
    }
    chunk
}

fn request(subject: &str, number: usize, body: &str) -> Vec<u8> {
    let inbox = number * 7919 % 10_000_000;
    format!("PUB {subject} {INBOX}.{inbox:07} {}\r\n{body}\r\n", body.len()).into_bytes()
}

/// Messages that are to be answered.
fn requests(subject: &str) -> Vec<u8> {
    let text = "a message of an agent to another".repeat(4);
    (0..BATCH).flat_map(|number| request(subject, number, &text)).collect()
}

/// Messages to so many subjects that nobody listens to.
fn messages(subjects: usize) -> Vec<u8> {
    let text = "a message of an agent to another".repeat(4);
    let one = |number: usize| {
        format!("PUB news.of.{} {}\r\n{text}\r\n", number % subjects, text.len()).into_bytes()
    };
    (0..BATCH).flat_map(one).collect()
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|some| some == part)
}

fn moment() -> Moment {
    let now = clock();
    Moment { wall_us: now.wall_ms * 1000, mono_us: now.mono_ms * 1000 }
}
