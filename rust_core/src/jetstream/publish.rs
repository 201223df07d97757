//! A client publishes to a subject of a stream: what its headers ask for, and the PubAck.

use serde_json::{Value, json};

use super::envelope::{self, Envelope};
use super::error::{self, ApiError};
use super::{JetStream, StreamIx};
use crate::front::Call;
use crate::store::{NotPublished, Publish, Published, Store};
use crate::time::Now;

/// The first line of a header block.
const VERSION: &[u8] = b"NATS/1.0\r\n";

/// What headers ask of a stream. Names are as they are written: case counts.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked<'a> {
    id: &'a str,
    stream: Option<&'a str>,
    last_seq: Option<&'a str>,
    last_id: Option<&'a str>,
    last_of_subject: Option<&'a str>,
    of_subject: Option<&'a str>,
    ttl: Option<&'a str>,
    rollup: bool,
    /// What no stream does, whatever else is asked.
    unserved: Option<ApiError>,
}

impl<'a> Asked<'a> {
    fn read(lines: &'a [u8]) -> Asked<'a> {
        let mut asked = Asked::default();
        for line in lines.split(|&byte| byte == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let Some(colon) = memchr::memchr(b':', line) else { continue };
            let (name, value) = (&line[..colon], &line[colon + 1..]);
            if !name.starts_with(b"Nats-") {
                continue;
            }
            let Ok(value) = std::str::from_utf8(value) else { continue };
            let value = value.trim();
            match name {
                _ if value.is_empty() => {}
                b"Nats-Msg-Id" => asked.id = value,
                b"Nats-Expected-Stream" => asked.stream = Some(value),
                b"Nats-Expected-Last-Sequence" => asked.last_seq = Some(value),
                b"Nats-Expected-Last-Msg-Id" => asked.last_id = Some(value),
                b"Nats-Expected-Last-Subject-Sequence" => asked.last_of_subject = Some(value),
                b"Nats-Expected-Last-Subject-Sequence-Subject" => asked.of_subject = Some(value),
                b"Nats-Batch-Id" => asked.unserved = Some(error::NO_BATCHES),
                b"Nats-Incr" => {
                    asked.unserved.get_or_insert(error::NO_COUNTERS);
                }
                b"Nats-TTL" => asked.ttl = Some(value),
                b"Nats-Rollup" => asked.rollup = true,
                _ => {}
            }
        }
        asked
    }
}

/// A number of a message; what is none is never the right one.
fn sequence(value: &str) -> u64 {
    value.parse().unwrap_or(u64::MAX)
}

/// The lines of a header block, without the first and the empty last.
pub(super) fn header_lines(block: &[u8]) -> &[u8] {
    let lines = block.strip_prefix(VERSION).unwrap_or_else(|| {
        let end = memchr::memchr(b'\n', block).map_or(block.len(), |end| end + 1);
        &block[end..]
    });
    lines.strip_suffix(b"\r\n").unwrap_or(lines)
}

/// The header block of stored lines; empty without lines.
pub(super) fn header_block(lines: &[u8]) -> Vec<u8> {
    match lines {
        b"" => Vec::new(),
        lines => [VERSION, lines, b"\r\n"].concat(),
    }
}

impl JetStream {
    /// Stores a message in a stream that wants it, and answers its publisher.
    pub fn publish(&mut self, store: &mut Store, ix: StreamIx, call: &Call<'_>, now: Now) {
        let Some(served) = self.get(ix) else { return };
        let quiet = served.config.no_ack || call.reply.is_empty();
        let outcome = store_message(store, served, call, now);
        if quiet {
            return;
        }
        let name = &served.config.name;
        let (promises, text) = match outcome {
            Ok(Published { seq, duplicate }) => (true, pub_ack(name, seq, duplicate)),
            Err(error) => {
                let refusal = json!({"error": error.value(), "stream": name, "seq": 0});
                (false, refusal.to_string().into_bytes())
            }
        };
        self.answer(call, store.end(), promises, text);
    }
}

fn pub_ack(stream: &str, seq: u64, duplicate: bool) -> Vec<u8> {
    let mut text = b"{\"stream\":".to_vec();
    // A Vec takes everything, and text is always JSON.
    let _ = serde_json::to_writer(&mut text, &Value::String(stream.to_owned()));
    text.extend_from_slice(b",\"seq\":");
    text.extend_from_slice(crate::nats::Number::new(seq).as_bytes());
    if duplicate {
        text.extend_from_slice(b",\"duplicate\":true");
    }
    text.push(b'}');
    text
}

fn store_message(
    store: &mut Store,
    served: &super::Served,
    call: &Call<'_>,
    now: Now,
) -> Result<Published, ApiError> {
    let Ok(subject) = std::str::from_utf8(call.subject) else { return Err(error::BAD_REQUEST) };
    let headers = header_lines(call.headers);
    let asked = Asked::read(headers);
    if let Some(error) = asked.unserved {
        return Err(error);
    }
    if asked.stream.is_some_and(|stream| stream != served.config.name) {
        return Err(error::WRONG_STREAM);
    }
    if asked.ttl.is_some() {
        return Err(error::NO_TTLS);
    }
    if asked.rollup {
        return Err(error::NO_ROLLUPS);
    }
    if envelope::is_asked(&served.config.metadata) {
        Envelope::read(call.payload)?;
    }
    let publish = Publish {
        subject,
        headers,
        payload: call.payload,
        id: asked.id,
        last_seq: asked.last_seq.map(sequence),
        last_id: asked.last_id,
        last_of_subject: asked
            .last_of_subject
            .map(|value| (sequence(value), asked.of_subject.unwrap_or(subject))),
    };
    store.publish_to(served.key, &publish, now).map_err(|why| match why {
        NotPublished::NoStream => error::STREAM_NOT_FOUND,
        NotPublished::TooLarge => error::TOO_LARGE,
        NotPublished::IdTooLong => error::ID_TOO_LONG,
        NotPublished::MaxMessages => ApiError::store("maximum messages exceeded"),
        NotPublished::MaxBytes => ApiError::store("maximum bytes exceeded"),
        NotPublished::LastSeq(last) => ApiError {
            code: 400,
            err_code: 10071,
            description: format!("wrong last sequence: {last}").into(),
        },
        NotPublished::LastId(last) => ApiError {
            code: 400,
            err_code: 10070,
            description: format!("wrong last msg ID: {last}").into(),
        },
        NotPublished::Failed(error) => error.into(),
    })
}
