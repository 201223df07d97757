//! A client publishes to a subject of a stream: what its headers ask for, and the PubAck.

use std::borrow::Cow;

use serde_json::json;

use super::dead_letters::{nowhere, stream_of_subject};
use super::duration::parse_time_ms;
use super::envelope::{self, Envelope};
use super::error::{self, ApiError};
use super::priority;
use super::{JetStream, StreamConfig, StreamIx, timestamp};
use crate::front::Call;
use crate::mailbox::Level;
use crate::protocol::{Unit, span_ms};
use crate::store::{NotPublished, Note, Publish, Published, Store, StreamKey};
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
    schedule: Option<&'a str>,
    target: Option<&'a str>,
    /// What mq9 adds: headers and their values.
    spans: [Option<&'a str>; 4],
    priority: Option<&'a [u8]>,
}

/// How long a message is to wait, and to live. Case does not count.
const SPANS: [&str; 4] = ["mq9-delay", "mq9-delay-ms", "mq9-ttl", "mq9-ttl-ms"];
/// Says when a message was due that was to enter its stream later.
const DUE: &str = "mq9-due-time";
/// What dead letters say of themselves begins with this.
const DEAD: &[u8] = b"mq9-dead-";

impl<'a> Asked<'a> {
    fn read(lines: &'a [u8]) -> Asked<'a> {
        let mut asked = Asked::default();
        if lines.is_empty() {
            return asked;
        }
        for line in lines.split(|&byte| byte == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let Some(colon) = memchr::memchr(b':', line) else { continue };
            let (name, value) = (&line[..colon], &line[colon + 1..]);
            if is_own(name) {
                asked.unserved = Some(error::OWN_HEADER);
            }
            if name.eq_ignore_ascii_case(priority::HEADER.as_bytes()) {
                asked.priority = Some(value.trim_ascii());
                continue;
            }
            let span = SPANS.iter().position(|span| name.eq_ignore_ascii_case(span.as_bytes()));
            if span.is_none() && !name.starts_with(b"Nats-") {
                continue;
            }
            let Ok(value) = std::str::from_utf8(value) else { continue };
            let value = value.trim();
            if let Some(span) = span {
                asked.spans[span] = Some(value);
                continue;
            }
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
                b"Nats-Schedule" => asked.schedule = Some(value),
                b"Nats-Schedule-Target" => asked.target = Some(value),
                _ => {}
            }
        }
        asked
    }

    /// How long the message is to wait, and to live, if that is said.
    fn times(&self, subject: &str, now: Now) -> Result<(Option<u64>, Option<u64>), ApiError> {
        if self.schedule.is_none() && self.spans == [None; 4] {
            return Ok((None, None));
        }
        let bad = |why: String| ApiError { description: why.into(), ..error::BAD_REQUEST };
        let mut found = [None; 4];
        for ((ms, value), name) in found.iter_mut().zip(self.spans).zip(SPANS) {
            let unit = if name.ends_with("-ms") { Unit::Milliseconds } else { Unit::Seconds };
            let span = value.map(|value| span_ms(name, value, unit)).transpose();
            *ms = span.map_err(|refusal| bad(refusal.text))?;
        }
        let mut delay = found[0].or(found[1]);
        if let Some(schedule) = self.schedule {
            if self.target.is_some_and(|target| target != subject) {
                return Err(bad("Nats-Schedule-Target must be the subject itself".to_owned()));
            }
            let due_ms =
                schedule.strip_prefix("@at ").and_then(parse_time_ms).ok_or_else(|| {
                    bad(format!("Nats-Schedule is {schedule:?}: it must be @at and a time"))
                })?;
            delay = Some(due_ms.saturating_sub(now.wall_ms));
        }
        Ok((delay, found[2].or(found[3])))
    }
}

/// Whether a header says what only the broker knows. Case does not count, nor do blanks: some readers strip them.
fn is_own(name: &[u8]) -> bool {
    let name = name.trim_ascii();
    let start = name.get(..DEAD.len()).unwrap_or_default();
    start.eq_ignore_ascii_case(DEAD) || name.eq_ignore_ascii_case(DUE.as_bytes())
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
        let outcome = store_message(store, served.key, &served.config, call, None, now);
        if quiet {
            return;
        }
        let name = &served.config.name;
        let (promises, text) = match outcome {
            Ok(published) => (true, pub_ack(name, published)),
            Err(error) => {
                let refusal = json!({"error": error.value(), "stream": name, "seq": 0});
                (false, refusal.to_string().into_bytes())
            }
        };
        self.answer(call, store.end(), promises, text);
    }
}

/// How urgent a dead letter is in the stream that it goes back to: what it says badly does not keep it.
pub fn level_of_letter(store: &Store, to: StreamKey, headers: &[u8], payload: &[u8]) -> Level {
    let config = store.stream_info(to).and_then(|info| StreamConfig::stored(&info.config));
    let Some(StreamConfig { metadata, .. }) = config else { return Level::NORMAL };
    let said = match Asked::read(headers).priority {
        _ if !priority::is_asked(&metadata) => None,
        Some(said) => priority::level(said).ok(),
        None if envelope::is_asked(&metadata) => Envelope::read(payload).ok().and_then(|e| e.level),
        None => None,
    };
    said.unwrap_or_default()
}

fn pub_ack(stream: &str, Published { seq, duplicate }: Published) -> Vec<u8> {
    let mut text = Vec::with_capacity(64 + stream.len());
    text.extend_from_slice(b"{\"stream\":");
    // A Vec takes everything, and text is always JSON.
    let _ = serde_json::to_writer(&mut text, stream);
    text.extend_from_slice(b",\"seq\":");
    text.extend_from_slice(crate::nats::Number::new(seq).as_bytes());
    if duplicate {
        text.extend_from_slice(b",\"duplicate\":true");
    }
    if seq == 0 {
        text.extend_from_slice(b",\"delayed\":true");
    }
    text.push(b'}');
    text
}

/// Stores a message in the stream that has its subject, as for a client, in one unit with a note.
pub fn publish_noted(
    store: &mut Store,
    call: &Call<'_>,
    note: &Note<'_>,
    now: Now,
) -> Result<Published, ApiError> {
    let subject = std::str::from_utf8(call.subject).map_err(|_| error::BAD_REQUEST)?;
    let key = stream_of_subject(store, subject, "");
    let info = key.and_then(|key| store.stream_info(key));
    let config = info.and_then(|info| StreamConfig::stored(&info.config));
    let Some((key, config)) = key.zip(config) else {
        return Err(ApiError { description: nowhere(subject).into(), ..error::STREAM_NOT_FOUND });
    };
    store_message(store, key, &config, call, Some(note), now)
}

fn store_message(
    store: &mut Store,
    key: StreamKey,
    config: &StreamConfig,
    call: &Call<'_>,
    note: Option<&Note<'_>>,
    now: Now,
) -> Result<Published, ApiError> {
    let Ok(subject) = std::str::from_utf8(call.subject) else { return Err(error::BAD_REQUEST) };
    let headers = header_lines(call.headers);
    let asked = Asked::read(headers);
    if let Some(error) = asked.unserved {
        return Err(error);
    }
    if asked.stream.is_some_and(|stream| stream != config.name) {
        return Err(error::WRONG_STREAM);
    }
    if asked.ttl.is_some() {
        return Err(error::NO_TTLS);
    }
    if asked.rollup {
        return Err(error::NO_ROLLUPS);
    }
    if asked.of_subject.is_some() && asked.last_of_subject.is_none() {
        return Err(error::NO_SUBJECT_SEQUENCE);
    }
    let envelope = match envelope::is_asked(&config.metadata) {
        true => Envelope::read(call.payload)?,
        false => Envelope::default(),
    };
    // What the headers say counts before what the envelope says.
    let level = match (priority::is_asked(&config.metadata), asked.priority) {
        (false, _) => Level::NORMAL,
        (true, Some(said)) => priority::level(said)?,
        (true, None) => envelope.level.unwrap_or_default(),
    };
    let (delay, ttl) = asked.times(subject, now)?;
    let due_in = envelope.due_ms.map(|due_ms| due_ms.saturating_sub(now.wall_ms));
    let delay_ms = delay.or(due_in).unwrap_or(0);
    let told = match delay_ms {
        0 => Vec::new(),
        _ => format!("{DUE}: {}\r\n", timestamp(now.wall_ms.saturating_add(delay_ms))).into_bytes(),
    };
    let headers = match delay_ms {
        0 => Cow::Borrowed(headers),
        _ if headers.is_empty() || headers.ends_with(b"\r\n") => {
            Cow::Owned([headers, &told].concat())
        }
        _ => Cow::Owned([headers, b"\r\n", &told].concat()),
    };
    let publish = Publish {
        subject,
        level,
        headers: &headers,
        payload: call.payload,
        delay_ms,
        ttl_ms: ttl.or(envelope.ttl_ms).unwrap_or(0),
        id: asked.id,
        last_seq: asked.last_seq.map(sequence),
        last_id: asked.last_id,
        last_of_subject: asked
            .last_of_subject
            .map(|value| (sequence(value), asked.of_subject.unwrap_or(subject))),
    };
    let published = match note {
        Some(note) => store.publish_noted(key, &publish, note, now),
        None => store.publish_to(key, &publish, now),
    };
    published.map_err(|why| match why {
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
        NotPublished::TooManySubjects => error::TOO_MANY_TO_FIND,
        NotPublished::Failed(error) => error.into(),
    })
}
