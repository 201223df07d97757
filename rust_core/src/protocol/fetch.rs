//! FETCH: what is asked for, and how its messages are to be written.

use serde::Deserialize;

use super::command::Misunderstood;
use super::entry::{self, Encoding};
use super::reply::Answer;
use super::request::{self, Deliver, FetchBody, Format, MAX_REQUEST};
use super::{Refusal, address_of};
use crate::commands::{FETCH, Shape};
use crate::store::{Fetch, Fetched, GroupFetch, MemberId, Start};

/// A FETCH.
#[derive(Debug)]
pub struct FetchCommand {
    /// What is asked for; whose connection asks is not known here.
    pub request: Fetch,
    /// How it is answered.
    pub form: Form,
}

/// How the messages are to be written.
#[derive(Debug)]
pub struct Form {
    format: Format,
    encoding: Encoding,
    /// For the reply subjects of raw messages.
    address: String,
    group: Option<String>,
}

/// Reads a FETCH.
pub(super) fn read(
    address: &[u8],
    payload: &[u8],
    encoding: Encoding,
) -> Result<FetchCommand, Misunderstood> {
    let read = || -> Result<FetchCommand, Refusal> {
        let address = address_of(address)?;
        plan(address, request::read(payload)?, encoding)
    };
    read().map_err(|refusal| (wanted_shape(payload), refusal))
}

/// How an error in a request is to be written, as far as the request can be read.
fn wanted_shape(payload: &[u8]) -> Shape {
    #[derive(Deserialize)]
    struct Body {
        config: Config,
    }
    #[derive(Deserialize)]
    struct Config {
        format: Format,
    }
    if payload.len() > MAX_REQUEST {
        return Shape::Messages;
    }
    match serde_json::from_slice(payload) {
        Ok(Body { config: Config { format } }) => Form::shape_of(format),
        Err(_) => Shape::Messages,
    }
}

fn plan(address: &str, body: FetchBody, encoding: Encoding) -> Result<FetchCommand, Refusal> {
    let config = body.config.unwrap_or_default();
    let start = match (body.deliver.unwrap_or(Deliver::Latest), body.from_time, body.from_id) {
        (Deliver::Latest, ..) => Start::Latest,
        (Deliver::Earliest, ..) => Start::Earliest,
        (Deliver::FromTime, Some(seconds), _) => Start::Since(seconds.saturating_mul(1000)),
        (Deliver::FromTime, None, _) => {
            return Err("deliver is \"from_time\", but from_time is missing".into());
        }
        (Deliver::FromId, _, Some(id)) => Start::Id(id),
        (Deliver::FromId, _, None) => {
            return Err("deliver is \"from_id\", but from_id is missing".into());
        }
    };
    let force = body.force_deliver.unwrap_or(false);
    let group = match (body.group_name, body.member) {
        (Some(name), member) => {
            let member = member.map_or(MemberId::Conn, MemberId::Named);
            Some(GroupFetch { name, member, force })
        }
        (None, Some(_)) => return Err("member is given, but group_name is missing".into()),
        (None, None) if config.held == Some(false) => {
            return Err("config.held is given, but group_name is missing".into());
        }
        (None, None) if force => {
            return Err("force_deliver is given, but group_name is missing".into());
        }
        (None, None) => None,
    };
    let format = config.format.unwrap_or_default();
    let encoding = if body.encoding.is_some() { Encoding::Base64 } else { encoding };
    let form = Form {
        format,
        encoding,
        address: address.to_owned(),
        group: group.as_ref().map(|group| group.name.clone()),
    };
    let request = Fetch {
        address: address.to_owned(),
        group,
        start,
        max_msgs: config.num_msgs()?,
        max_bytes: config.max_bytes()?,
        max_level: config.max_level()?,
        ack_wait_ms: config.ack_wait_ms()?,
        held: config.held.unwrap_or(true),
        wait_ms: config.max_wait_ms()?,
        conn: 0,
        user: None,
    };
    Ok(FetchCommand { request, form })
}

impl Form {
    fn shape_of(format: Format) -> Shape {
        match format {
            Format::Json => Shape::Messages,
            Format::Raw => Shape::Raw,
        }
    }

    /// How an error is told.
    pub fn shape(&self) -> Shape {
        Form::shape_of(self.format)
    }

    /// The subject of the FETCH.
    pub fn subject(&self) -> Vec<u8> {
        [FETCH, self.address.as_bytes()].concat()
    }

    /// What was found, at once or after a wait.
    pub fn write(&self, batch: &Fetched, waited: bool) -> Answer {
        match self.format {
            Format::Json => Answer::Text(entry::write_json(batch, self.encoding)),
            Format::Raw => {
                let group = self.group.as_deref();
                let status = match (batch.is_empty(), waited) {
                    (false, _) => "204 Batch Completed",
                    (true, true) => "408 Request Timeout",
                    (true, false) => "404 No Messages",
                };
                Answer::Raw(entry::write_raw(batch, &self.address, group, status))
            }
        }
    }
}
