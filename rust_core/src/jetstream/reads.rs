//! Requests for one message of a stream: as JSON, or as it is.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;
use serde_json::json;

use super::api::{Answer, Outcome, members};
use super::error::{self, ApiError};
use super::publish::header_block;
use super::streams::parse;
use super::{JetStream, Outgoing, duration, timestamp};
use crate::front::{Call, Handled};
use crate::protocol::{self, OneMessage, Reply, ReplySubject};
use crate::store::{Fetched, Store, StreamKey};

/// Which message is asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct GetRequest {
    seq: u64,
    last_by_subj: String,
    next_by_subj: String,
    start_time: Option<String>,
    no_hdr: bool,
    batch: u64,
    multi_last: Vec<String>,
}

impl GetRequest {
    /// What is asked for is one message, and clear.
    fn is_clear(&self) -> bool {
        let (last, next) = (!self.last_by_subj.is_empty(), !self.next_by_subj.is_empty());
        let begins = self.seq > 0 || next || self.start_time.is_some();
        let twice = last && begins || self.seq > 0 && self.start_time.is_some();
        (last || begins) && !twice
    }

    fn find(&self, store: &mut Store, key: StreamKey) -> Result<Option<Fetched>, ApiError> {
        let mut from = self.seq.saturating_sub(1);
        if let Some(time) = &self.start_time {
            let time = duration::parse_time_ms(time).ok_or(error::BAD_REQUEST)?;
            let Some(first) = store.first_since(key, time) else { return Ok(None) };
            from = first;
        }
        let msg_id = if !self.last_by_subj.is_empty() {
            store.last_of_subject(key, &self.last_by_subj)
        } else if !self.next_by_subj.is_empty() {
            store.next_of_subject(key, &self.next_by_subj, from)
        } else {
            Some(from)
        };
        Ok(match msg_id {
            Some(msg_id) => store.stream_message(key, msg_id)?,
            None => None,
        })
    }
}

impl JetStream {
    pub(super) fn get_message(&self, store: &mut Store, stream: &str, body: &[u8]) -> Answer {
        Answer::new("stream_msg_get", self.try_get(store, stream, body))
    }

    fn try_get(&self, store: &mut Store, stream: &str, body: &[u8]) -> Outcome {
        let Some((_, served)) = self.find(stream) else { return Err(error::STREAM_NOT_FOUND) };
        let request: GetRequest = parse(body)?;
        if !request.is_clear() {
            return Err(error::BAD_REQUEST);
        }
        let found = request.find(store, served.key)?.ok_or(error::NO_MESSAGE)?;
        let (meta, message) = found.iter().next().ok_or(error::NO_MESSAGE)?;
        let mut said = members(json!({
            "subject": message.key, "seq": meta.msg_id + 1, "time": timestamp(meta.create_ms),
        }));
        if !message.headers.is_empty() && !request.no_hdr {
            let block = header_block(message.headers);
            said.insert("hdrs".to_owned(), BASE64.encode(block).into());
        }
        if !message.payload.is_empty() {
            said.insert("data".to_owned(), BASE64.encode(message.payload).into());
        }
        Ok(members(json!({"message": said})))
    }

    /// Sends a message of a stream as it is. Unknown where the stream is not read like that.
    pub(super) fn get_direct(
        &mut self,
        store: &mut Store,
        (stream, subject): (&str, &str),
        call: &Call<'_>,
    ) -> Handled {
        let served = self.find(stream).map(|(_, served)| served);
        let Some(served) = served.filter(|served| served.config.allow_direct) else {
            return Handled::Unknown;
        };
        let name = served.config.name.clone();
        let known = store.end();
        match read_direct(store, served.key, &name, subject, call.payload) {
            _ if call.reply.is_empty() => {}
            Ok(message) => {
                let to = ReplySubject::from_slice(call.reply);
                let reply = Reply::of_jetstream(call.cid, to, protocol::Answer::Message(message));
                self.send(Outgoing { known, reply });
            }
            Err(status) => self.status(call.cid, call.reply, known, status),
        }
        Handled::Done
    }
}

/// A message as it is sent, or the status that says why there is none.
fn read_direct(
    store: &mut Store,
    key: StreamKey,
    stream: &str,
    subject: &str,
    body: &[u8],
) -> Result<OneMessage, &'static str> {
    const BAD: &str = "408 Bad Request";
    let mut request: GetRequest = parse(body).map_err(|_| "408 Malformed Request")?;
    if !subject.is_empty() {
        if !body.trim_ascii().is_empty() {
            return Err(BAD);
        }
        request.last_by_subj = subject.to_owned();
    }
    if request.batch > 1 || !request.multi_last.is_empty() {
        return Err("408 Batches Not Supported");
    }
    if request.last_by_subj.is_empty()
        && request.next_by_subj.is_empty()
        && request.seq == 0
        && request.start_time.is_none()
    {
        return Err("408 Empty Request");
    }
    if !request.is_clear() {
        return Err(BAD);
    }
    const MISSING: &str = "404 Message Not Found";
    let found = request.find(store, key).map_err(|_| BAD)?.ok_or(MISSING)?;
    let (meta, message) = found.iter().next().ok_or(MISSING)?;
    let mut headers = Vec::new();
    if !request.no_hdr {
        let about = format!(
            "Nats-Stream: {stream}\r\nNats-Subject: {}\r\nNats-Sequence: {}\r\nNats-Time-Stamp: {}\r\n",
            message.key,
            meta.msg_id + 1,
            timestamp(meta.create_ms),
        );
        headers = header_block(&[message.headers, about.as_bytes()].concat());
    }
    Ok(OneMessage::new(b"", b"", &headers, message.payload))
}

/// The stream and the subject that a request to [`JetStream::get_direct`] names.
pub(super) fn direct_target(name: &str) -> Option<(&str, &str)> {
    let rest = name.strip_prefix("DIRECT.GET.")?;
    Some(rest.split_once('.').unwrap_or((rest, "")))
}
