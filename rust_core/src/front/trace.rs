//! Message tracing: whoever publishes with `Nats-Trace-Dest` is told there where the message went.
//!
//! Owns what is noted of such a message on its way and the document made of it, whose fields are those of
//! nats-server. The wall clock comes in as an argument, when the document is written.

use std::collections::BTreeMap;

use memchr::memchr;
use serde_json::{Value, json};

use super::{ConnId, Event, Front, RESERVED};
use crate::front::deliver::{Audience, Message};
use crate::nats::{self, Publish};
use crate::router::{Matches, Sid};

const DESTINATION: &[u8] = b"Nats-Trace-Dest";
const ONLY: &[u8] = b"Nats-Trace-Only";

/// What a destination says that wants no trace.
const DISABLED: &[u8] = b"trace disabled";

/// The account of all clients, and what nats-server calls clients and itself.
const ACCOUNT: &str = "$G";
const CLIENT: u8 = 0;
const SYSTEM: u8 = 3;

/// Room for what is not a stop of the message.
const FRAME_BYTES: usize = 4096;

/// Why a subscription that listens does not get a message.
pub(super) const NO_ECHO: &str = "Not delivered because of no echo";
pub(super) const DENIED: &str = "Not delivered because subscription denies this subject";
pub(super) const SLOW: &str = "Not delivered because the client does not read";

/// A message that is traced.
#[derive(Debug, PartialEq, Eq)]
pub struct Trace {
    cid: u64,
    name: Box<str>,
    destination: Box<[u8]>,
    /// Nobody gets the message: its sender only wants to know who would.
    pub(super) only: bool,
    subject: Box<[u8]>,
    headers: Box<[u8]>,
    size: usize,
    error: String,
    /// Subscriptions that were met, not looked up yet.
    pub(super) met: Vec<(ConnId, Sid, &'static str)>,
    stops: Vec<Stop>,
}

/// A subscription that was met, or the server itself.
#[derive(Debug, PartialEq, Eq)]
struct Stop {
    kind: u8,
    cid: u64,
    name: Box<str>,
    subject: Box<[u8]>,
    queue: Box<[u8]>,
    error: &'static str,
}

/// What a client asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Asked<'a> {
    /// Empty where nothing can be published to: the message is traced for nobody.
    pub destination: &'a [u8],
    pub only: bool,
}

/// Whether these headers ask for a trace.
pub(super) fn asked(headers: &[u8]) -> Option<Asked<'_>> {
    let wanted = value_of(headers, DESTINATION)?;
    if wanted.is_empty() || wanted == DISABLED {
        return None;
    }
    let usable = nats::is_literal(wanted)
        && !wanted.iter().any(u8::is_ascii_whitespace)
        && !wanted.starts_with(RESERVED);
    let only = value_of(headers, ONLY).is_some_and(is_true);
    Some(Asked { destination: if usable { wanted } else { b"" }, only })
}

fn is_true(value: &[u8]) -> bool {
    [&b"true"[..], b"1", b"on"].iter().any(|word| value.eq_ignore_ascii_case(word))
}

/// The first value of a header, without blanks around it.
fn value_of<'a>(headers: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut rest = headers;
    while let Some(end) = memchr(b'\n', rest) {
        rest = &rest[end + 1..];
        if let Some(value) = rest.strip_prefix(name).and_then(|rest| rest.strip_prefix(b":")) {
            let end = memchr(b'\n', value).unwrap_or(value.len());
            return Some(value[..end].trim_ascii());
        }
    }
    None
}

/// All headers, as the document has them.
fn header_document(headers: &[u8]) -> Value {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in headers.split(|&byte| byte == b'\n').skip(1) {
        if let Some(colon) = memchr(b':', line) {
            let value = line[colon + 1..].trim_ascii();
            found.entry(text(&line[..colon])).or_default().push(text(value));
        }
    }
    json!(found)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Front {
    /// What the server says of itself in traces: the members of a JSON object, without its braces.
    pub fn introduce(&mut self, members: &str) {
        self.introduction = members.into();
    }

    /// Begins to note where a message goes.
    pub(super) fn start_trace(
        &mut self,
        id: ConnId,
        publish: &Publish<'_>,
        asked: &Asked<'_>,
        headers: &[u8],
    ) {
        let Some(conn) = self.conn(id) else { return };
        self.trace = Some(Box::new(Trace {
            cid: conn.cid,
            name: conn.terms.name.clone(),
            destination: asked.destination.into(),
            only: asked.only,
            subject: publish.subject.into(),
            headers: headers.into(),
            size: publish.size,
            error: String::new(),
            met: Vec::new(),
            stops: Vec::new(),
        }));
    }

    /// The message has gone where it goes.
    pub(super) fn end_trace(&mut self) {
        if let Some(trace) = self.trace.take()
            && !trace.destination.is_empty()
        {
            self.events.push_back(Event::Trace(trace));
        }
    }

    /// The message is refused.
    pub(super) fn trace_error(&mut self, error: &[u8]) {
        if let Some(trace) = &mut self.trace {
            trace.error = text(error);
        }
    }

    /// The server itself has taken the message.
    pub(super) fn trace_served(&mut self, subject: &[u8]) {
        if let Some(trace) = &mut self.trace {
            trace.stops.push(Stop {
                kind: SYSTEM,
                cid: 0,
                name: Box::default(),
                subject: subject.into(),
                queue: Box::default(),
                error: "",
            });
        }
    }

    /// Looks up the subscriptions that were met, while all of them are there.
    pub(super) fn look_up_stops(&mut self, trace: &mut Trace) {
        for (owner, sid, error) in trace.met.drain(..) {
            let Some(conn) = self.conn(owner) else { continue };
            let Some(&subscription) = conn.sids.get(&sid) else { continue };
            let Some((subject, queue)) = self.router.subject_of(subscription) else { continue };
            trace.stops.push(Stop {
                kind: CLIENT,
                cid: conn.cid,
                name: conn.terms.name.clone(),
                subject: subject.into(),
                queue: queue.into(),
                error,
            });
        }
    }

    /// Publishes what was noted of a message; `time` is now, as the document writes it.
    pub fn publish_trace(&mut self, trace: &Trace, time: &str) {
        self.traces += 1;
        let document = self.trace_document(trace, time);
        let mut matches = Matches::new();
        self.router.matches(&trace.destination, &mut matches);
        let body = [document.as_bytes(), b"\r\n"].concat();
        let subject = &*trace.destination;
        let message = Message {
            from: None,
            audience: Audience::All,
            subject,
            reply: b"",
            headers: 0,
            body: &body,
        };
        self.deliver(&message, &matches, self.now_us);
    }

    fn trace_document(&self, trace: &Trace, time: &str) -> String {
        let seq = self.traces;
        let server = format!("{{{},\"seq\":{seq},\"time\":\"{time}\"}}", self.introduction);
        // As large as a client may publish: headers that escapes make too long are left out, and whoever has more
        // readers than fit learns of the first.
        let room = self.limits.max_payload.saturating_sub(FRAME_BYTES);
        let mut headers = header_document(&trace.headers).to_string();
        if headers.len() > room / 2 {
            headers = "{}".to_owned();
        }
        let mut events = trace.arrival(time);
        for stop in &trace.stops {
            let event = stop.document(time);
            if headers.len() + events.len() + event.len() > room {
                break;
            }
            events.push(',');
            events.push_str(&event);
        }
        let request = format!("{{\"header\":{headers},\"msgsize\":{}}}", trace.size);
        format!("{{\"server\":{server},\"request\":{request},\"events\":[{events}]}}")
    }
}

impl Trace {
    fn arrival(&self, time: &str) -> String {
        let head = head("in", time, CLIENT, self.cid, &self.name);
        let subject = json!(text(&self.subject));
        format!("{head},\"acc\":\"{ACCOUNT}\",\"subj\":{subject}{}}}", error_member(&self.error))
    }
}

impl Stop {
    fn document(&self, time: &str) -> String {
        let head = head("eg", time, self.kind, self.cid, &self.name);
        let subject = json!(text(&self.subject));
        let queue = match &*self.queue {
            b"" => String::new(),
            queue => format!(",\"queue\":{}", json!(text(queue))),
        };
        format!("{head},\"sub\":{subject}{queue}{}}}", error_member(self.error))
    }
}

/// The members that all events begin with, in nats-server's order.
fn head(kind: &str, time: &str, of: u8, cid: u64, name: &str) -> String {
    let name = if name.is_empty() { String::new() } else { format!(",\"name\":{}", json!(name)) };
    format!("{{\"type\":\"{kind}\",\"ts\":\"{time}\",\"kind\":{of},\"cid\":{cid}{name}")
}

fn error_member(error: &str) -> String {
    if error.is_empty() { String::new() } else { format!(",\"error\":{}", json!(error)) }
}
