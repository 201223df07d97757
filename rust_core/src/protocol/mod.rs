//! SEND, FETCH and ACK on the wire: from the text of a request to a [`Command`], and from what became of it to the
//! text of a reply.
//!
//! Pure: owns wire forms and the words of refusals. Must not know connections, nor carry anything out.

mod ack;
pub mod broadcast;
mod command;
mod entry;
mod fetch;
mod headers;
pub mod push;
mod reply;
mod request;

use std::borrow::Cow;

use crate::error::Error;
use crate::store::{BroadcastLimits, Fetched, Meta};
use crate::wire::op::Message;

pub use broadcast::BroadcastCommand;
pub use command::{AckCommand, Command, SendCommand, parse};
pub use entry::Encoding;
pub use fetch::{FetchCommand, Form};
pub(crate) use headers::{Unit, priority_problem, span_ms};
pub use push::{Dialect, PushCommand};
pub use reply::{Answer, OneMessage, Reply, ReplySubject};

/// Settings of the wire form, and of what is served.
#[derive(Debug, Clone, Copy, Default)]
pub struct WireOptions {
    /// Payloads in JSON are base64, valid text or not.
    pub always_base64: bool,
    /// Requests of JetStream clients are served.
    pub jetstream: bool,
    /// How many broadcasts are stored.
    pub broadcasts: BroadcastLimits,
}

impl WireOptions {
    /// How payloads are put into JSON unless a request says otherwise.
    pub fn encoding(self) -> Encoding {
        if self.always_base64 { Encoding::Base64 } else { Encoding::Auto }
    }
}

/// A message as an entry of `messages`, for a reply that the caller puts together.
pub fn entry(meta: &Meta, message: &Message<'_>, options: WireOptions) -> Vec<u8> {
    let mut out = Vec::with_capacity(128 + message.payload.len());
    entry::entry(&mut out, meta, message, options.encoding());
    out
}

/// A message that is not due yet as an entry of `messages`.
pub fn delayed_entry(meta: &Meta, message: &Message<'_>, options: WireOptions) -> Vec<u8> {
    let mut out = Vec::with_capacity(160 + message.payload.len());
    entry::delayed(&mut out, meta, message, options.encoding());
    out
}

/// The reply to MAILBOX.QUERY with as many of these messages as fit, and how many that are.
pub fn unread(address: &str, unread: u64, batch: &Fetched, encoding: Encoding) -> (Vec<u8>, usize) {
    entry::write_unread(address, unread, batch, encoding)
}

/// Why a request was not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What kind of reason it is, in one word that travels in a header of the reply.
    pub kind: Cow<'static, str>,
    /// The reason in words for people.
    pub text: String,
}

impl Refusal {
    /// A request that cannot be understood, or asks for what is not allowed.
    pub fn invalid(text: impl Into<String>) -> Refusal {
        Refusal { kind: "invalid_request".into(), text: text.into() }
    }
}

impl From<&Error> for Refusal {
    fn from(error: &Error) -> Refusal {
        Refusal { kind: error.kind().into(), text: error.to_string() }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal::from(&error)
    }
}

impl From<String> for Refusal {
    fn from(text: String) -> Refusal {
        Refusal::invalid(text)
    }
}

impl From<&str> for Refusal {
    fn from(text: &str) -> Refusal {
        Refusal::invalid(text)
    }
}

/// The address in a subject, checked.
fn address_of(bytes: &[u8]) -> Result<&str, Refusal> {
    let Ok(address) = std::str::from_utf8(bytes) else {
        let shown = String::from_utf8_lossy(bytes).into_owned();
        return Err(Error::InvalidAddress { address: shown, rule: "it is not UTF-8" }.into());
    };
    crate::mailbox::check_address(address)?;
    Ok(address)
}
