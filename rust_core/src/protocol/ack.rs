//! ACK: what became of messages that were given out.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

use super::command::AckCommand;
use super::request::{self, AckBody, Kind};
use super::{Refusal, address_of};
use crate::commands::RAW_ACK;
use crate::store::AckKind;

/// Reads an ACK.
pub(super) fn read<'a>(address: &'a [u8], payload: &[u8]) -> Result<AckCommand<'a>, Refusal> {
    let address = address_of(address)?;
    let body: AckBody = request::read(payload)?;
    let Some(group) = body.group_name.clone() else { return Err("group_name is missing".into()) };
    if let Some(named) = &body.mail_address
        && named != address
    {
        let problem = format!("mail_address is {named:?}, but the subject says {address:?}");
        return Err(problem.into());
    }
    let msg_ids = body.ids()?;
    let kind = body.kind.unwrap_or_default();
    let delay_ms = request::rest_ms("delay_ms", body.delay_ms)?;
    let kind = match kind {
        Kind::Ack => AckKind::Done { only: body.only.unwrap_or(false) },
        Kind::Nak => AckKind::Return { delay_ms },
        Kind::Progress => AckKind::Progress,
        Kind::Term => AckKind::Terminate,
    };
    Ok(AckCommand { address, group, msg_ids, kind })
}

/// Reads the acknowledgement of one message by the reply subject it was delivered with.
///
/// The payload is what NATS clients send for a message of a pull consumer.
pub(super) fn read_raw<'a>(tail: &'a [u8], payload: &[u8]) -> Result<AckCommand<'a>, Refusal> {
    let mut parts = tail.splitn(3, |&byte| byte == b'.');
    let (group, id) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let address = address_of(parts.next().unwrap_or_default())?;
    let group = BASE64_URL_SAFE_NO_PAD.decode(group).ok().and_then(|g| String::from_utf8(g).ok());
    let id = std::str::from_utf8(id).ok().and_then(|id| id.parse().ok());
    let (Some(group), Some(id)) = (group, id) else {
        return Err("the subject is not one that a message was delivered with".into());
    };
    let kind = match payload.trim_ascii() {
        b"" | b"+ACK" | b"+OK" => AckKind::Done { only: true },
        b"+WPI" => AckKind::Progress,
        b"+TERM" => AckKind::Terminate,
        nak if nak.starts_with(b"-NAK") => AckKind::Return { delay_ms: nak_delay_ms(&nak[4..])? },
        _ => return Err("the payload must be +ACK, -NAK, +WPI, +TERM or empty".into()),
    };
    Ok(AckCommand { address, group, msg_ids: vec![id], kind })
}

/// Where a message of a raw FETCH is acknowledged, up to its `msg_id`.
pub(super) fn raw_subject(group: &str) -> Vec<u8> {
    let group = BASE64_URL_SAFE_NO_PAD.encode(group);
    [RAW_ACK, group.as_bytes(), b"."].concat()
}

/// The delay of `-NAK {"delay": nanoseconds}`.
fn nak_delay_ms(tail: &[u8]) -> Result<u64, Refusal> {
    #[derive(serde::Deserialize)]
    struct Nak {
        delay: Option<u64>,
    }
    let nak: Nak = request::read(tail)?;
    request::rest_ms("delay", nak.delay.map(|ns| ns / 1_000_000))
}
