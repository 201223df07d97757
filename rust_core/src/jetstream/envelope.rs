//! The envelope `hanzo.mq.v1`: what a task must say where a stream asks for it, and what of it counts for the broker.
//!
//! Owns its fields. One pass over the payload; what the task is about is skipped, however deep.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::duration::parse_time_ms;
use super::error::{self, ApiError};
use crate::mailbox::Level;

/// The option of a stream that asks for an envelope.
const OPTION: &str = "mq9.envelope";
/// The envelope that there is.
const SCHEMA: &str = "hanzo.mq.v1";
/// The longest id, type, and so on.
const MAX_TEXT: usize = 255;
/// About 68 years.
const MAX_TTL_S: i64 = i32::MAX as i64;

/// What of an envelope counts for the broker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Envelope {
    /// It is invisible until then, in ms since 1970.
    pub due_ms: Option<u64>,
    /// It is gone after so long.
    pub ttl_ms: Option<u64>,
    /// How urgent it is.
    pub level: Option<Level>,
}

impl Envelope {
    /// Reads the envelope that a payload has to be.
    pub fn read(payload: &[u8]) -> Result<Envelope, ApiError> {
        parse(payload).map_err(|why| ApiError {
            description: format!("this is no envelope {SCHEMA}: {why}").into(),
            ..error::BAD_REQUEST
        })
    }
}

#[derive(Deserialize)]
struct Fields {
    #[serde(rename = "schema")]
    _schema: Schema,
    #[serde(rename = "id")]
    _id: Text,
    #[serde(rename = "type")]
    _type: Type,
    #[serde(rename = "source")]
    _source: Text,
    #[serde(rename = "timestamp")]
    _timestamp: Time,
    #[serde(default)]
    priority: Option<i64>,
    #[serde(default, rename = "org_id")]
    _org_id: Option<Text>,
    #[serde(default, rename = "team_id")]
    _team_id: Option<Text>,
    #[serde(default)]
    delay_until: Option<Time>,
    #[serde(default)]
    ttl_seconds: Option<i64>,
    #[serde(rename = "data")]
    _data: Object,
}

struct Schema;

struct Text;

struct Type;

struct Time(u64);

struct Object;

/// A string that is not copied where it has no escapes.
fn text<'de, D: Deserializer<'de>>(from: D) -> Result<Cow<'de, str>, D::Error> {
    #[derive(Deserialize)]
    struct Borrowed<'a>(#[serde(borrow)] Cow<'a, str>);
    Ok(Borrowed::deserialize(from)?.0)
}

impl<'de> Deserialize<'de> for Schema {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match text(from)?.as_ref() {
            SCHEMA => Ok(Schema),
            _ => Err(de::Error::custom(format!("it must be {SCHEMA}"))),
        }
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match text(from)?.len() {
            0 => Err(de::Error::custom("it is empty")),
            1..=MAX_TEXT => Ok(Text),
            _ => Err(de::Error::custom(format!("it is longer than {MAX_TEXT} bytes"))),
        }
    }
}

impl<'de> Deserialize<'de> for Type {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let found = text(from)?;
        if found.len() > MAX_TEXT || found.split('.').any(str::is_empty) {
            let why = "expected words with dots between them, such as notify.webhook";
            return Err(de::Error::custom(why));
        }
        Ok(Type)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = text(from)?;
        let found = is_time(&text).then(|| parse_time_ms(&text)).flatten();
        found.map(Time).ok_or_else(|| {
            de::Error::custom("expected a time in UTC such as 2026-02-23T10:30:00.000Z")
        })
    }
}

/// Whether it has the form and the range of a time in UTC; the days of a month are not counted.
fn is_time(text: &str) -> bool {
    let Some(rest) = text.strip_suffix('Z').or_else(|| text.strip_suffix("+00:00")) else {
        return false;
    };
    let (whole, fraction) = rest.split_once('.').unwrap_or((rest, "0"));
    let form = "dddd-dd-ddTdd:dd:dd";
    let fits = |(form, found): (u8, u8)| match form {
        b'd' => found.is_ascii_digit(),
        other => found == other,
    };
    let in_range = |at: usize, most: &str| whole[at..at + 2] <= *most;
    whole.len() == form.len()
        && form.bytes().zip(whole.bytes()).all(fits)
        && (1..=9).contains(&fraction.len())
        && fraction.bytes().all(|digit| digit.is_ascii_digit())
        && ("01"..="12").contains(&&whole[5..7])
        && ("01"..="31").contains(&&whole[8..10])
        && in_range(11, "23")
        && in_range(14, "59")
        && in_range(17, "60")
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Skipped;
        impl<'de> Visitor<'de> for Skipped {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Object)
            }
        }
        from.deserialize_map(Skipped)
    }
}

/// Whether a stream asks for an envelope.
pub(super) fn is_asked(metadata: &BTreeMap<String, String>) -> bool {
    !metadata.is_empty() && metadata.contains_key(OPTION)
}

/// A stream may ask for the envelope that there is.
pub(super) fn check_option(metadata: &BTreeMap<String, String>) -> Result<(), ApiError> {
    match metadata.get(OPTION) {
        None => Ok(()),
        Some(asked) if asked == SCHEMA => Ok(()),
        Some(_) => Err(ApiError::stream_config(format!("{OPTION} must be {SCHEMA}"))),
    }
}

fn parse(payload: &[u8]) -> Result<Envelope, String> {
    let mut json = serde_json::Deserializer::from_slice(payload);
    let fields: Fields = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let why = error.into_inner();
        if path == "." { why.to_string() } else { format!("{path}: {why}") }
    })?;
    json.end().map_err(|error| error.to_string())?;
    let level = fields.priority.map(|number| {
        let level = u8::try_from(number).ok().and_then(Level::new);
        level
            .ok_or_else(|| format!("priority: {number} is not between 1 (highest) and 10 (lowest)"))
    });
    let level = level.transpose()?;
    let ttl_ms = match fields.ttl_seconds {
        Some(ttl) if !(1..=MAX_TTL_S).contains(&ttl) => {
            return Err(format!("ttl_seconds: {ttl} is not between 1 and {MAX_TTL_S}"));
        }
        ttl => ttl.and_then(|ttl| u64::try_from(ttl).ok()).map(|ttl| ttl * 1000),
    };
    Ok(Envelope { due_ms: fields.delay_until.map(|Time(due)| due), ttl_ms, level })
}
