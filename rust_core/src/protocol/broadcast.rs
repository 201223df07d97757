//! Broadcasts that are to be stored: what their headers ask for, and how they are written to who listens.

use super::Refusal;
use super::headers;
use crate::mailbox::Level;
use crate::nats;
use crate::store::{Broadcast, Meta, StoredBroadcast};
use crate::wire::op::Message;

/// The longest subject that can be stored, in bytes.
const MAX_SUBJECT: usize = crate::store::MAX_TAGS;

/// A broadcast that is to be stored.
#[derive(Debug)]
pub struct BroadcastCommand<'a> {
    subject: &'a str,
    wishes: headers::Wishes<'a>,
    payload: &'a [u8],
}

/// Reads a broadcast; nothing if it is not to be stored.
pub fn read<'a>(
    subject: &'a [u8],
    headers: &'a [u8],
    payload: &'a [u8],
) -> Option<Result<BroadcastCommand<'a>, Refusal>> {
    let wishes = match headers::read(headers) {
        Ok(wishes) => wishes,
        Err(refusal) => return Some(Err(refusal)),
    };
    (wishes.persist == Some(true)).then(|| {
        check(&wishes)?;
        if !nats::is_literal(subject) {
            return Err(
                "a broadcast that is stored needs a domain and an event, without wildcards".into(),
            );
        }
        if subject.len() > MAX_SUBJECT {
            let len = subject.len();
            let text = format!("the subject has {len} bytes, at most {MAX_SUBJECT} can be stored");
            return Err(text.into());
        }
        let subject = std::str::from_utf8(subject).map_err(|_| "the subject is not UTF-8")?;
        Ok(BroadcastCommand { subject, wishes, payload })
    })
}

/// Refuses what is for messages of mailboxes: stored broadcasts have one order, and nobody asks for some of them.
fn check(wishes: &headers::Wishes<'_>) -> Result<(), Refusal> {
    let given = [
        ("mq9-key", !wishes.key.is_empty()),
        ("mq9-tags", !wishes.tags.is_empty()),
        ("mq9-delay", wishes.delay_ms > 0),
        ("mq9-priority", wishes.level.is_some()),
    ];
    match given.iter().find(|(_, given)| *given) {
        Some((name, _)) => Err(format!("{name} is not for broadcasts that are stored").into()),
        None => Ok(()),
    }
}

impl BroadcastCommand<'_> {
    /// As the store takes it.
    pub fn broadcast(&self) -> Broadcast<'_> {
        Broadcast {
            subject: self.subject,
            headers: &self.wishes.others,
            payload: self.payload,
            ttl_ms: self.wishes.ttl_ms,
            id: self.wishes.id,
        }
    }

    /// Headers, payload and CRLF as they are told to who listens, and how long the headers are.
    pub fn told(&self, stored: &StoredBroadcast, create_ms: u64) -> (usize, Vec<u8>) {
        let StoredBroadcast { msg_id, expires_ms, .. } = *stored;
        let level = Level::NORMAL;
        let message = Message {
            msg_id,
            sent_ms: create_ms,
            create_ms,
            expires_ms,
            level: level.number(),
            address: "",
            key: "",
            tags: "",
            headers: &self.wishes.others,
            payload: self.payload,
        };
        let mut out = Vec::with_capacity(160 + message.headers.len() + message.payload.len());
        let meta = Meta { msg_id, level, create_ms, deliveries: 0, last_delivery: false };
        let headers = write(&mut out, &meta, &message);
        (headers, out)
    }
}

/// Appends the headers and payload of a stored broadcast; how long the headers are.
pub fn write(out: &mut Vec<u8>, meta: &Meta, message: &Message<'_>) -> usize {
    super::push::write(out, meta, &Message { tags: "", ..*message })
}
