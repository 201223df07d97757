//! The JSON of requests: types, ranges, and words that say what is wrong and where.

use serde::Deserialize;

use super::Refusal;
use super::headers::priority_problem;
use crate::mailbox::Level;

/// The largest FETCH or ACK: ten thousand ids of twenty digits, and some.
pub(super) const MAX_REQUEST: usize = 256 << 10;
/// Most messages of one FETCH.
const MAX_MSGS: u64 = 10_000;
/// Longest wait of a long poll: an hour.
const MAX_WAIT_MS: u64 = 3_600_000;
/// Longest lease: a week.
const MAX_ACK_WAIT_MS: u64 = 7 * 24 * 3_600_000;
/// Most bytes of messages in one reply.
const MAX_BYTES: u64 = 16 << 20;
/// Most messages named in one ACK.
const MAX_IDS: usize = 10_000;

/// The body of a FETCH.
#[derive(Debug, Default, Deserialize)]
pub(super) struct FetchBody {
    pub group_name: Option<String>,
    pub member: Option<String>,
    pub deliver: Option<Deliver>,
    pub from_time: Option<u64>,
    pub from_id: Option<u64>,
    pub force_deliver: Option<bool>,
    pub encoding: Option<EncodingName>,
    pub config: Option<FetchConfig>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct FetchConfig {
    pub num_msgs: Option<u64>,
    pub max_wait_ms: Option<u64>,
    pub ack_wait_ms: Option<u64>,
    pub max_bytes: Option<u64>,
    pub min_priority: Option<Priority>,
    pub held: Option<bool>,
    pub format: Option<Format>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Deliver {
    Latest,
    Earliest,
    FromTime,
    FromId,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Format {
    #[default]
    Json,
    Raw,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum EncodingName {
    Base64,
}

/// A priority as a name or a number.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a name or number of a priority")]
pub(super) enum Priority {
    Number(u64),
    Name(String),
}

/// The body of an ACK.
#[derive(Debug, Deserialize)]
pub(super) struct AckBody {
    pub group_name: Option<String>,
    pub mail_address: Option<String>,
    pub msg_id: Option<u64>,
    pub msg_ids: Option<Vec<u64>>,
    pub only: Option<bool>,
    pub kind: Option<Kind>,
    pub delay_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    #[default]
    Ack,
    Nak,
    Progress,
    Term,
}

/// Reads a request; an empty one is `{}`.
pub(super) fn read<'a, T: Deserialize<'a>>(payload: &'a [u8]) -> Result<T, Refusal> {
    let text = if payload.trim_ascii().is_empty() { b"{}" } else { payload };
    if text.trim_ascii_start().first() != Some(&b'{') {
        return Err("the request must be a JSON object".into());
    }
    if text.len() > MAX_REQUEST {
        let rule = format!("at most {MAX_REQUEST} are allowed");
        return Err(format!("the request has {} bytes: {rule}", text.len()).into());
    }
    // To know the place of a mistake takes several times as long: only where there is one.
    if let Ok(body) = serde_json::from_slice(text) {
        return Ok(body);
    }
    let mut json = serde_json::Deserializer::from_slice(text);
    let body = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let problem = error.into_inner();
        Refusal::invalid(match path.as_str() {
            "." | "?" => format!("invalid request: {problem}"),
            path => format!("invalid {path}: {problem}"),
        })
    })?;
    json.end().map_err(|problem| Refusal::invalid(format!("invalid request: {problem}")))?;
    Ok(body)
}

impl FetchConfig {
    pub fn num_msgs(&self) -> Result<usize, Refusal> {
        let count = in_range("config.num_msgs", self.num_msgs.unwrap_or(100), 1, MAX_MSGS)?;
        Ok(count as usize)
    }

    pub fn max_wait_ms(&self) -> Result<u64, Refusal> {
        in_range("config.max_wait_ms", self.max_wait_ms.unwrap_or(500), 0, MAX_WAIT_MS)
    }

    pub fn ack_wait_ms(&self) -> Result<u64, Refusal> {
        // 0 is the default of the mailbox.
        self.ack_wait_ms.map_or(Ok(0), |ms| in_range("config.ack_wait_ms", ms, 1, MAX_ACK_WAIT_MS))
    }

    pub fn max_bytes(&self) -> Result<u64, Refusal> {
        in_range("config.max_bytes", self.max_bytes.unwrap_or(1 << 20), 1, MAX_BYTES)
    }

    pub fn max_level(&self) -> Result<Level, Refusal> {
        let (found, given) = match &self.min_priority {
            None => return Ok(Level::LOWEST),
            Some(Priority::Name(name)) => (Level::named(name), name.clone()),
            Some(Priority::Number(number)) => {
                (u8::try_from(*number).ok().and_then(Level::new), number.to_string())
            }
        };
        found.ok_or_else(|| priority_problem("config.min_priority", &given).into())
    }
}

impl AckBody {
    /// The messages meant.
    pub fn ids(&self) -> Result<Vec<u64>, Refusal> {
        match (self.msg_id, &self.msg_ids) {
            (Some(id), None) => Ok(vec![id]),
            (None, Some(ids)) if ids.len() <= MAX_IDS && !ids.is_empty() => Ok(ids.clone()),
            (None, Some(ids)) => {
                Err(format!("msg_ids holds {} numbers: 1 to {MAX_IDS} are allowed", ids.len())
                    .into())
            }
            (Some(_), Some(_)) => Err("msg_id and msg_ids cannot both be given".into()),
            (None, None) => Err("msg_id is missing".into()),
        }
    }
}

/// A lease or rest that is asked for.
pub(super) fn rest_ms(name: &str, value: Option<u64>) -> Result<u64, Refusal> {
    in_range(name, value.unwrap_or(0), 0, MAX_ACK_WAIT_MS)
}

fn in_range(name: &str, value: u64, least: u64, most: u64) -> Result<u64, Refusal> {
    if (least..=most).contains(&value) {
        Ok(value)
    } else {
        Err(format!("{name} is {value}: it must be from {least} to {most}").into())
    }
}
