//! Messages on their way to a client: entries of a JSON list, or NATS messages of their own.

use std::borrow::Cow;
use std::collections::HashMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::ack::raw_subject;
use super::headers::stored;
use super::reply::{Batch, RawMessage};
use crate::nats::Number;
use crate::store::{Fetched, Meta};
use crate::wire::op::Message;

/// About what a raw message has besides its record.
const RAW_BYTES: usize = 160;

/// Where a reply with unread messages ends, unless its first message is larger.
const UNREAD_BYTES: usize = 1 << 20;

/// How payloads are put into JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// As text where they are valid UTF-8.
    Auto,
    /// Always as base64.
    Base64,
}

/// The reply to a FETCH.
pub(super) fn write_json(batch: &Fetched, encoding: Encoding) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + batch.len() * 128);
    out.extend_from_slice(b"{\"error\":\"\",\"messages\":[");
    for (at, (meta, message)) in batch.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        entry(&mut out, &meta, &message, encoding);
    }
    out.extend_from_slice(b"]}");
    out
}

/// The reply that gives messages of an inbox which nobody has read, `unread` in all: as many of them as fit, and how many
/// that are.
pub(super) fn write_unread(
    address: &str,
    unread: u64,
    batch: &Fetched,
    encoding: Encoding,
) -> (Vec<u8>, usize) {
    let mut out = Vec::with_capacity(128 + batch.bytes() + batch.len() * 64);
    out.extend_from_slice(b"{\"error\":\"\",\"mail_id\":");
    string(&mut out, address);
    number(&mut out, b",\"unread\":", unread);
    out.extend_from_slice(b",\"messages\":[");
    let mut given = 0;
    for (meta, message) in batch.iter() {
        let before = out.len();
        if given > 0 {
            out.push(b',');
        }
        entry(&mut out, &meta, &message, encoding);
        if out.len() > UNREAD_BYTES && given > 0 {
            out.truncate(before);
            break;
        }
        given += 1;
    }
    let more: &[u8] = if unread > given as u64 { b"],\"more\":true}" } else { b"]}" };
    out.extend_from_slice(more);
    (out, given)
}

/// One message of such a reply.
pub(super) fn entry(out: &mut Vec<u8>, meta: &Meta, message: &Message<'_>, encoding: Encoding) {
    number(out, b"{\"msg_id\":", meta.msg_id);
    body(out, meta, message, encoding);
    number(out, b",\"create_time\":", meta.create_ms / 1000);
    rest(out, meta, message);
}

/// The same of a message that is not due yet.
pub(super) fn delayed(out: &mut Vec<u8>, meta: &Meta, message: &Message<'_>, encoding: Encoding) {
    number(out, b"{\"delay_id\":", meta.msg_id);
    body(out, meta, message, encoding);
    number(out, b",\"create_time\":", message.sent_ms / 1000);
    number(out, b",\"due_time\":", meta.create_ms.div_ceil(1000));
    rest(out, meta, message);
}

fn body(out: &mut Vec<u8>, meta: &Meta, message: &Message<'_>, encoding: Encoding) {
    out.extend_from_slice(b",\"payload\":");
    match std::str::from_utf8(message.payload) {
        Ok(text) if encoding == Encoding::Auto => string(out, text),
        _ => {
            out.push(b'"');
            out.extend_from_slice(BASE64_STANDARD.encode(message.payload).as_bytes());
            out.extend_from_slice(b"\",\"encoding\":\"base64\"");
        }
    }
    out.extend_from_slice(b",\"priority\":\"");
    out.extend_from_slice(meta.level.name().as_bytes());
    out.push(b'"');
}

fn rest(out: &mut Vec<u8>, meta: &Meta, message: &Message<'_>) {
    if !message.key.is_empty() {
        out.extend_from_slice(b",\"key\":");
        string(out, message.key);
    }
    if !message.tags.is_empty() {
        let mut before: &[u8] = b",\"tags\":[";
        for tag in message.tags.split(',') {
            out.extend_from_slice(before);
            string(out, tag);
            before = b",";
        }
        out.push(b']');
    }
    headers(out, message.headers);
    if message.expires_ms > 0 {
        number(out, b",\"expires_at\":", message.expires_ms.div_ceil(1000));
    }
    if meta.deliveries > 0 {
        number(out, b",\"deliveries\":", u64::from(meta.deliveries));
    }
    if meta.last_delivery {
        out.extend_from_slice(b",\"last_delivery\":true");
    }
    out.push(b'}');
}

/// Headers by name, each with the list of its values, in the order they came.
fn headers(out: &mut Vec<u8>, block: &[u8]) {
    if block.is_empty() {
        return;
    }
    let mut named: Vec<(Cow<'_, str>, Vec<&[u8]>)> = Vec::new();
    // There may be thousands, and their names are the sender's choice: found by a hash that nobody can foresee.
    let mut places: HashMap<Cow<'_, str>, usize> = HashMap::new();
    for (name, value) in stored(block) {
        let name = String::from_utf8_lossy(name);
        match places.get(&name) {
            Some(&at) => named[at].1.push(value),
            None => {
                places.insert(name.clone(), named.len());
                named.push((name, vec![value]));
            }
        }
    }
    let mut before: &[u8] = b",\"headers\":{";
    for (name, values) in &named {
        out.extend_from_slice(before);
        string(out, name);
        let mut opening: &[u8] = b":[";
        for value in values {
            out.extend_from_slice(opening);
            string(out, &String::from_utf8_lossy(value));
            opening = b",";
        }
        out.push(b']');
        before = b",";
    }
    if !named.is_empty() {
        out.push(b'}');
    }
}

/// The messages of a raw FETCH.
pub(super) fn write_raw(
    batch: &Fetched,
    address: &str,
    group: Option<&str>,
    status: &'static str,
) -> Batch {
    let subject = group.map(raw_subject);
    let mut bytes = Vec::with_capacity(batch.bytes() + batch.len() * RAW_BYTES);
    let mut messages = Vec::with_capacity(batch.len());
    for (meta, message) in batch.iter() {
        if let Some(subject) = &subject {
            number(&mut bytes, subject, meta.msg_id);
            bytes.push(b'.');
            bytes.extend_from_slice(address.as_bytes());
        }
        let reply = bytes.len();
        raw_headers(&mut bytes, &meta, &message);
        let headers = bytes.len();
        bytes.extend_from_slice(message.payload);
        messages.push(RawMessage { reply, headers, payload: bytes.len() });
    }
    Batch { bytes, messages, status }
}

/// The headers of a message as it is pushed.
pub(super) fn push_headers(out: &mut Vec<u8>, meta: &Meta, message: &Message<'_>) {
    raw_headers(out, meta, message);
}

fn raw_headers(out: &mut Vec<u8>, meta: &Meta, message: &Message<'_>) {
    // In few pieces: this is written for every message.
    number(out, b"NATS/1.0\r\nmq9-msg-id: ", meta.msg_id);
    out.extend_from_slice(b"\r\nmq9-priority: ");
    out.extend_from_slice(meta.level.name().as_bytes());
    number(out, b"\r\nmq9-create-time: ", meta.create_ms / 1000);
    out.extend_from_slice(b"\r\n");
    let mut line = |name: &str, value: &[u8]| {
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    };
    if !message.key.is_empty() {
        line("mq9-key", message.key.as_bytes());
    }
    if !message.tags.is_empty() {
        line("mq9-tags", message.tags.as_bytes());
    }
    if message.expires_ms > 0 {
        line("mq9-expires-at", Number::new(message.expires_ms.div_ceil(1000)).as_bytes());
    }
    if meta.deliveries > 0 {
        line("mq9-deliveries", Number::new(u64::from(meta.deliveries)).as_bytes());
    }
    if meta.last_delivery {
        line("mq9-last-delivery", b"true");
    }
    out.extend_from_slice(message.headers);
    out.extend_from_slice(b"\r\n");
}

fn number(out: &mut Vec<u8>, before: &[u8], value: u64) {
    out.extend_from_slice(before);
    out.extend_from_slice(Number::new(value).as_bytes());
}

pub(super) fn string(out: &mut Vec<u8>, text: &str) {
    // A Vec takes everything, and text is always JSON.
    let _ = serde_json::to_writer(out, text);
}
