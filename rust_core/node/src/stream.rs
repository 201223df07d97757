//! The stream as JetStream serves it: requests as messages, and what the answers say.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use mq9_cluster::{Answer, Found};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::wire::{Message, publish};

/// A message with that sequence is not there.
const NO_MESSAGE: u32 = 10_037;
/// No stream of that name.
const NO_STREAM: u32 = 10_059;
const WRONG_LAST: [u32; 2] = [10_071, 10_164];
/// How often a consumer says that there is nothing to say.
pub const IDLE_MS: u64 = 500;

/// Numbers of subscriptions: answers, other nodes, and from here on a consumer each. What a consumer delivers has the
/// subject it was published to, and a consumer sees only interest in its very subject.
const ANSWERS: u64 = 1;
const PEERS: u64 = 2;
const TAILS: u64 = 1_000;

/// What an answer means.
#[derive(Debug)]
pub enum News {
    /// The stream is there.
    Ready,
    /// It is not, or not to be had now.
    NotReady(String),
    /// It is there, but would not keep what it confirms, and this is why.
    Unfit(String),
    /// There is no such stream.
    Missing,
    /// To an append.
    Answered(String, Answer),
    /// To a look at a sequence.
    Found(u64, Found),
    /// There is no message at this sequence: what there is must be asked for.
    NotThere(u64),
    /// What the stream holds.
    Extent {
        /// The sequence because of which it was asked.
        about: u64,
        /// The oldest message.
        first: u64,
        /// The newest message.
        last: u64,
    },
    /// A message of the stream.
    Delivered {
        /// The consumer that it was delivered to.
        tail: u64,
        /// Its place.
        sequence: u64,
        /// What it says.
        payload: Vec<u8>,
    },
    /// Consumer `tail` lives.
    Alive(u64),
    /// It could not be made.
    NoTail(u64),
    /// What another node says of itself.
    Peer(Vec<u8>),
    /// Something that nobody waits for.
    Nothing,
}

/// Names of the stream and of subjects, and where answers come to.
pub struct Stream {
    name: String,
    subject: String,
    inbox: String,
    peers: String,
    replicas: u32,
}

#[derive(Deserialize)]
struct Reply {
    error: Option<Refusal>,
    #[serde(default)]
    seq: u64,
    message: Option<Stored>,
    state: Option<Extent>,
    config: Option<Config>,
}

/// Settings of the stream on which it depends that nothing confirmed is lost.
#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    subjects: Vec<String>,
    #[serde(default)]
    retention: String,
    #[serde(default)]
    storage: String,
    #[serde(default)]
    discard: String,
    #[serde(default)]
    num_replicas: u32,
    #[serde(default)]
    max_age: i64,
    #[serde(default)]
    max_msgs: i64,
    #[serde(default)]
    max_bytes: i64,
    #[serde(default)]
    max_msgs_per_subject: i64,
    #[serde(default)]
    max_msg_size: i64,
    #[serde(default)]
    no_ack: bool,
    #[serde(default)]
    sealed: bool,
}

#[derive(Deserialize)]
struct Refusal {
    #[serde(default)]
    err_code: u32,
    #[serde(default)]
    description: String,
}

#[derive(Deserialize)]
struct Stored {
    #[serde(default)]
    data: String,
}

#[derive(Deserialize)]
struct Extent {
    first_seq: u64,
    last_seq: u64,
}

impl Stream {
    /// The stream of a cluster; `token` tells this connection from any other.
    pub fn new(cluster: &str, token: u64, replicas: u32) -> Stream {
        Stream {
            name: format!("MQ9_LOG_{cluster}"),
            subject: format!("mq9.log.{cluster}"),
            inbox: format!("_INBOX.mq9.{token:016x}"),
            peers: format!("mq9.node.{cluster}"),
            replicas,
        }
    }

    /// What is said first on every connection.
    pub fn subscribe(&self, out: &mut Vec<u8>) {
        let Stream { inbox, peers, .. } = self;
        let line = format!("SUB {inbox}.> {ANSWERS}\r\nSUB {peers}.* {PEERS}\r\n");
        out.extend_from_slice(line.as_bytes());
    }

    fn ask(&self, out: &mut Vec<u8>, what: &str, answer: &str, body: &Value) {
        let (subject, reply) = (format!("$JS.API.{what}"), format!("{}.{answer}", self.inbox));
        let body = if body.is_null() { String::new() } else { body.to_string() };
        publish(out, &subject, &reply, &[], body.as_bytes());
    }

    /// Asks whether the stream is there.
    pub fn ask_ready(&self, out: &mut Vec<u8>) {
        self.ask(out, &format!("STREAM.INFO.{}", self.name), "ready", &Value::Null);
    }

    /// Makes the stream. One that is there already with these settings stays as it is.
    pub fn create(&self, out: &mut Vec<u8>) {
        let config = json!({
            "name": self.name, "subjects": [self.subject], "retention": "limits", "storage": "file",
            "num_replicas": self.replicas, "max_consumers": -1, "max_msgs": -1, "max_bytes": -1, "max_age": 0,
            "max_msg_size": -1, "max_msgs_per_subject": -1, "discard": "new", "duplicate_window": 120_000_000_000_u64,
            "allow_direct": false, "deny_delete": true,
        });
        self.ask(out, &format!("STREAM.CREATE.{}", self.name), "ready", &config);
    }

    /// Appends a batch, if `expected` is the last sequence.
    pub fn append(&self, out: &mut Vec<u8>, id: &str, expected: u64, message: &[u8]) {
        let (expected, reply) = (expected.to_string(), format!("{}.append.{id}", self.inbox));
        let headers = [("Nats-Msg-Id", id), ("Nats-Expected-Last-Sequence", &expected)];
        publish(out, &self.subject, &reply, &headers, message);
    }

    /// Asks the stream's leader for a message.
    pub fn look_up(&self, out: &mut Vec<u8>, sequence: u64) {
        let what = format!("STREAM.MSG.GET.{}", self.name);
        self.ask(out, &what, &format!("look.{sequence}"), &json!({ "seq": sequence }));
    }

    /// Asks what the stream holds.
    pub fn ask_extent(&self, out: &mut Vec<u8>, about: u64) {
        self.ask(
            out,
            &format!("STREAM.INFO.{}", self.name),
            &format!("extent.{about}"),
            &Value::Null,
        );
    }

    /// Has the stream delivered from a sequence on, to consumer `tail`.
    pub fn tail(&self, out: &mut Vec<u8>, tail: u64, from: u64) {
        let name = self.consumer(tail);
        let subject = format!("{}_tail.{tail}", self.inbox);
        let (before, own) = (TAILS + tail - 1, TAILS + tail);
        out.extend_from_slice(format!("UNSUB {before}\r\nSUB {subject} {own}\r\n").as_bytes());
        let config = json!({
            "stream_name": self.name, "action": "create",
            "config": {
                "name": name, "deliver_subject": subject, "ack_policy": "none",
                "deliver_policy": "by_start_sequence", "opt_start_seq": from, "replay_policy": "instant",
                "flow_control": true, "idle_heartbeat": IDLE_MS * 1_000_000, "mem_storage": true, "num_replicas": 1,
                "inactive_threshold": 5_000_000_000_u64, "max_deliver": 1,
            },
        });
        let what = format!("CONSUMER.CREATE.{}.{name}", self.name);
        self.ask(out, &what, &format!("made.{tail}"), &config);
    }

    /// Ends a consumer.
    pub fn end_tail(&self, out: &mut Vec<u8>, tail: u64) {
        out.extend_from_slice(format!("UNSUB {}\r\n", TAILS + tail).as_bytes());
        let what = format!("CONSUMER.DELETE.{}.{}", self.name, self.consumer(tail));
        self.ask(out, &what, "ended", &Value::Null);
    }

    fn consumer(&self, tail: u64) -> String {
        format!("mq9_{}_{tail}", self.inbox.rsplit('.').next().unwrap_or_default())
    }

    /// Removes what lies before `sequence`.
    pub fn purge(&self, out: &mut Vec<u8>, sequence: u64) {
        let what = format!("STREAM.PURGE.{}", self.name);
        self.ask(out, &what, "purged", &json!({ "seq": sequence }));
    }

    /// Tells the other nodes.
    pub fn tell(&self, out: &mut Vec<u8>, node: u32, status: &[u8]) {
        publish(out, &format!("{}.{node}", self.peers), "", &[], status);
    }

    /// What a message means. What has to be answered at once is.
    pub fn hear(&self, message: Message, out: &mut Vec<u8>) -> News {
        if message.sid >= TAILS {
            return delivered(message.sid - TAILS, message, out);
        }
        if message.sid == PEERS {
            return News::Peer(message.payload);
        }
        let rest = message.subject.strip_prefix(&self.inbox).unwrap_or_default();
        let mut words = rest.trim_start_matches('.').splitn(2, '.');
        let (what, which) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let number = which.parse().unwrap_or(0);
        // Nobody listens: there is no leader at the moment.
        let reply: Option<Reply> = match message.status() {
            Some(_) => None,
            None => serde_json::from_slice(&message.payload).ok(),
        };
        if what == "ready"
            && let Some(Reply { error: None, config: Some(config), .. }) = &reply
            && let Some((setting, found, wanted)) = self.differs(config)
        {
            return News::Unfit(format!(
                "the stream {} has {setting}: {found}, and mq9 needs {wanted}: change that with `nats stream edit`; \
                 if it cannot be changed, and holds nothing of worth, remove the stream",
                self.name
            ));
        }
        meaning(what, which, number, reply)
    }

    /// The first setting that is not as it has to be: its name, what it is, and what it should be.
    fn differs(&self, config: &Config) -> Option<(&'static str, String, String)> {
        let texts = [
            ("subjects", config.subjects.join(", "), self.subject.as_str()),
            ("retention", config.retention.clone(), "limits"),
            ("storage", config.storage.clone(), "file"),
            ("discard", config.discard.clone(), "new"),
            ("no_ack", config.no_ack.to_string(), "false"),
            ("sealed", config.sealed.to_string(), "false"),
        ];
        if let Some((name, found, wanted)) =
            texts.into_iter().find(|(_, found, wanted)| found != wanted)
        {
            return Some((name, found, wanted.to_owned()));
        }
        if config.num_replicas < self.replicas {
            let (found, wanted) = (config.num_replicas, self.replicas);
            return Some(("num_replicas", found.to_string(), format!("{wanted} or more")));
        }
        // None of them is a limit unless it is above zero.
        let limits = [
            ("max_age", config.max_age),
            ("max_msgs", config.max_msgs),
            ("max_bytes", config.max_bytes),
            ("max_msgs_per_subject", config.max_msgs_per_subject),
            ("max_msg_size", config.max_msg_size),
        ];
        let (name, found) = limits.into_iter().find(|(_, limit)| *limit > 0)?;
        Some((name, found.to_string(), "no such limit".to_owned()))
    }
}

fn meaning(what: &str, which: &str, number: u64, reply: Option<Reply>) -> News {
    let code = reply.as_ref().and_then(|reply| reply.error.as_ref()).map(|error| error.err_code);
    match (what, reply) {
        ("append", Some(Reply { error: None, seq, .. })) => {
            News::Answered(which.to_owned(), Answer::Stored { sequence: seq })
        }
        ("append", _) if code.is_some_and(|code| WRONG_LAST.contains(&code)) => {
            News::Answered(which.to_owned(), Answer::WrongLast)
        }
        ("append", _) => News::Answered(which.to_owned(), Answer::Unknown),
        ("look", Some(Reply { error: None, message: Some(stored), .. })) => {
            let data = BASE64_STANDARD.decode(stored.data);
            News::Found(number, data.map_or(Found::Unknown, Found::Message))
        }
        ("look", _) if code == Some(NO_MESSAGE) => News::NotThere(number),
        ("look", _) => News::Found(number, Found::Unknown),
        ("extent", Some(Reply { error: None, state: Some(state), .. })) => {
            News::Extent { about: number, first: state.first_seq, last: state.last_seq }
        }
        ("ready", Some(Reply { error: None, .. })) => News::Ready,
        ("ready", _) if code == Some(NO_STREAM) => News::Missing,
        ("ready", reply) => {
            let said = reply.and_then(|reply| reply.error).map(|error| error.description);
            News::NotReady(said.unwrap_or_else(|| "JetStream does not answer".to_owned()))
        }
        ("made", Some(Reply { error: None, .. })) => News::Alive(number),
        ("made", _) => News::NoTail(number),
        _ => News::Nothing,
    }
}

fn delivered(tail: u64, message: Message, out: &mut Vec<u8>) -> News {
    if message.status() == Some(100) {
        // Flow control, or a heartbeat that says which one it waits for.
        let stalled = message.header("Nats-Consumer-Stalled").unwrap_or_default();
        for reply in [message.reply.as_str(), stalled] {
            if !reply.is_empty() {
                publish(out, reply, "", &[], b"");
            }
        }
        return News::Alive(tail);
    }
    if message.status().is_some() {
        return News::NoTail(tail);
    }
    // $JS.ACK.<stream>.<consumer>.<deliveries>.<sequence>. and so on; servers may put a domain and an account before.
    let words: Vec<&str> = message.reply.split('.').collect();
    let at = if words.len() > 9 { 7 } else { 5 };
    match words.get(at).and_then(|word| word.parse().ok()) {
        Some(sequence) => News::Delivered { tail, sequence, payload: message.payload },
        None => News::Nothing,
    }
}
