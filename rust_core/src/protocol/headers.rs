//! Header blocks: those of requests, and those of messages in the raw format.

use super::Refusal;
use crate::mailbox::{Level, Policy};
use crate::store::MAX_SEND_ID;

const VERSION: &[u8] = b"NATS/1.0";

/// The longest delay or life that can be asked for: a hundred years.
const MAX_SECONDS: u64 = 100 * 366 * 24 * 3600;

/// What the headers of a message ask for.
#[derive(Debug, Default)]
pub(super) struct Wishes<'a> {
    pub level: Option<Level>,
    pub key: &'a str,
    pub tags: String,
    pub delay_ms: u64,
    pub ttl_ms: u64,
    /// Whether it is to survive a restart.
    pub persist: Option<bool>,
    /// What makes the send the same when it is made again; empty is nothing. It travels with the message.
    pub id: &'a str,
    /// All other headers, a line each.
    pub others: Vec<u8>,
}

/// Reads the header block of a SEND.
pub(super) fn read(block: &[u8]) -> Result<Wishes<'_>, Refusal> {
    let mut wishes = Wishes::default();
    let mut seen = [false; KNOWN.len()];
    for line in lines(block)? {
        let (name, value) = line?;
        let known = KNOWN.iter().position(|known| name.eq_ignore_ascii_case(known));
        let Some(which) = known else {
            check_other(name)?;
            if IDS.iter().any(|known| name.eq_ignore_ascii_case(known)) {
                wishes.id = id(name, value, wishes.id)?;
            }
            wishes.others.extend_from_slice(name);
            wishes.others.extend_from_slice(b": ");
            wishes.others.extend_from_slice(value);
            wishes.others.extend_from_slice(b"\r\n");
            continue;
        };
        let name = std::str::from_utf8(KNOWN[which]).unwrap_or_default();
        if std::mem::replace(&mut seen[which], true) {
            return Err(format!("{name} is given more than once").into());
        }
        let value = std::str::from_utf8(value).map_err(|_| format!("{name} is not UTF-8"))?;
        if value.is_empty() {
            return Err(format!("{name} is empty").into());
        }
        match which {
            0 => wishes.key = value,
            1 => wishes.delay_ms = span_ms(name, value, Unit::Seconds)?,
            2 => wishes.ttl_ms = span_ms(name, value, Unit::Seconds)?,
            3 => wishes.tags = tags(value)?,
            4 => {
                let level = Level::named(value).ok_or_else(|| priority_problem(name, value))?;
                wishes.level = Some(level);
            }
            5 => wishes.delay_ms = span_ms(name, value, Unit::Milliseconds)?,
            6 => wishes.ttl_ms = span_ms(name, value, Unit::Milliseconds)?,
            _ => wishes.persist = Some(flag(name, value)?),
        }
    }
    for (whole, exact) in [(1, 5), (2, 6)] {
        if seen[whole] && seen[exact] {
            let [whole, exact] = [whole, exact].map(|at| String::from_utf8_lossy(KNOWN[at]));
            return Err(format!("{whole} and {exact} cannot both be given").into());
        }
    }
    if wishes.ttl_ms == 0 && (seen[2] || seen[6]) {
        // Said to be no limit, whatever the mailbox says of those that say nothing.
        wishes.ttl_ms = Policy::NEVER;
    }
    Ok(wishes)
}

const KNOWN: [&[u8]; 8] = [
    b"mq9-key",
    b"mq9-delay",
    b"mq9-ttl",
    b"mq9-tags",
    b"mq9-priority",
    b"mq9-delay-ms",
    b"mq9-ttl-ms",
    PERSIST,
];

/// Whether a message is to survive a restart.
const PERSIST: &[u8] = b"mq9-persist";

/// What mq9 says of a message, and its sender must not.
const WRITTEN_BY_MQ9: [&[u8]; 5] =
    [b"mq9-msg-id", b"mq9-create-time", b"mq9-deliveries", b"mq9-last-delivery", b"mq9-expires-at"];
const WRITTEN_ON_DEATH: &[u8] = b"mq9-dead-";
/// Either names the send.
const IDS: [&[u8]; 2] = [b"mq9-id", b"Nats-Msg-Id"];

/// The id of a send, where `before` was given already.
fn id<'a>(name: &[u8], value: &'a [u8], before: &'a str) -> Result<&'a str, Refusal> {
    let name = String::from_utf8_lossy(name);
    let id = std::str::from_utf8(value).map_err(|_| format!("{name} is not UTF-8"))?;
    if id.is_empty() {
        return Err(format!("{name} is empty").into());
    }
    if id.len() > MAX_SEND_ID {
        let len = id.len();
        return Err(format!("{name} has {len} bytes, at most {MAX_SEND_ID} are allowed").into());
    }
    if !before.is_empty() && before != id {
        return Err(format!("{name} is another id than the one before: a message has one").into());
    }
    Ok(id)
}

/// Refuses a header that must not travel with the message.
fn check_other(name: &[u8]) -> Result<(), Refusal> {
    let is = |other: &&[u8]| name.eq_ignore_ascii_case(other);
    let start = name.get(..WRITTEN_ON_DEATH.len()).unwrap_or_default();
    let shown = String::from_utf8_lossy(name);
    if WRITTEN_BY_MQ9.iter().any(is) || start.eq_ignore_ascii_case(WRITTEN_ON_DEATH) {
        return Err(format!("{shown} is a header that only the broker writes").into());
    }
    Ok(())
}

/// Characters without a glyph, which some readers strip and nobody sees: marks of direction, joiners, a byte order mark.
fn is_unseen(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Whether a reader that strips names would take this one for another.
fn has_blank(name: &[u8]) -> bool {
    match std::str::from_utf8(name) {
        Ok(name) => name.chars().any(|c| c.is_whitespace() || c.is_control() || is_unseen(c)),
        // As Latin-1, the last ones here are control characters and a blank.
        Err(_) => name.iter().any(|byte| matches!(byte, 0..=b' ' | 0x7f..=0xa0)),
    }
}

pub(crate) fn priority_problem(name: &str, value: &str) -> String {
    format!(
        "{name} is {value:?}: it must be critical, urgent, normal, notify or a number from 1 to 10"
    )
}

/// A header's name and value.
type Line<'a> = (&'a [u8], &'a [u8]);

/// The names and values of a block; an empty block has none.
fn lines(block: &[u8]) -> Result<impl Iterator<Item = Result<Line<'_>, Refusal>>, Refusal> {
    let mut rest = block;
    if !block.is_empty() {
        let end = block.strip_suffix(b"\r\n\r\n").map(|front| &block[..front.len() + 2]);
        let (Some(body), true) = (end, block.starts_with(VERSION)) else {
            return Err(
                "the headers are malformed: they must begin with NATS/1.0 and end with an \
                        empty line"
                    .into(),
            );
        };
        // The rest of the first line is a status, which a request does not have.
        let first = memchr::memchr(b'\n', body).unwrap_or(body.len() - 1);
        end_of_line(&body[..first])?;
        rest = &body[first + 1..];
    }
    Ok(std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let feed = memchr::memchr(b'\n', rest).unwrap_or(rest.len() - 1);
        let line = &rest[..feed];
        rest = &rest[feed + 1..];
        Some(name_and_value(line))
    }))
}

/// The line in front of a line feed, which only a carriage return may precede.
fn end_of_line(line: &[u8]) -> Result<&[u8], Refusal> {
    match line.strip_suffix(b"\r") {
        Some(line) if memchr::memchr(b'\r', line).is_none() => Ok(line),
        _ => Err(format!("the header line {} holds a bare CR or LF", shown(line)).into()),
    }
}

fn name_and_value(line: &[u8]) -> Result<Line<'_>, Refusal> {
    let line = end_of_line(line)?;
    match memchr::memchr(b':', line) {
        Some(colon @ 1..) if !has_blank(&line[..colon]) => {
            Ok((&line[..colon], line[colon + 1..].trim_ascii()))
        }
        Some(colon @ 1..) => {
            Err(format!("the header name {} holds a blank", shown(&line[..colon])).into())
        }
        _ => {
            let line = shown(line);
            Err(format!("the header line {line} is malformed: it must be \"Name: value\"").into())
        }
    }
}

/// The beginning of some bytes as an error quotes them.
fn shown(bytes: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(80)]))
}

/// The headers a message was stored with, name and value.
pub(super) fn stored(headers: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    headers.split(|&byte| byte == b'\n').filter_map(|line| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let colon = memchr::memchr(b':', line)?;
        Some((&line[..colon], line[colon + 1..].trim_ascii()))
    })
}

fn flag(name: &str, value: &str) -> Result<bool, Refusal> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(format!("{name} is {value:?}: it must be true or false").into()),
    }
}

/// What a span of time is told in.
pub(crate) enum Unit {
    Seconds,
    Milliseconds,
}

/// What a header says of a span of time, in ms.
pub(crate) fn span_ms(name: &str, value: &str, unit: Unit) -> Result<u64, Refusal> {
    let (unit_ms, units) = match unit {
        Unit::Seconds => (1000, "seconds"),
        Unit::Milliseconds => (1, "milliseconds"),
    };
    let most = MAX_SECONDS * 1000 / unit_ms;
    match value.parse::<u64>() {
        Ok(span) if span <= most => Ok(span * unit_ms),
        _ => {
            let rule = format!("it must be a whole number of {units} from 0 to {most}");
            Err(format!("{name} is {value:?}: {rule}").into())
        }
    }
}

fn tags(value: &str) -> Result<String, Refusal> {
    let mut joined = String::with_capacity(value.len());
    for tag in value.split(',').map(str::trim).filter(|tag| !tag.is_empty()) {
        if !joined.is_empty() {
            joined.push(',');
        }
        joined.push_str(tag);
    }
    if joined.is_empty() {
        return Err("mq9-tags holds no tag".into());
    }
    Ok(joined)
}
