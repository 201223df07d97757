//! Header blocks: those of requests, and those of messages in the raw format.

use super::Refusal;
use crate::mailbox::Level;

const VERSION: &[u8] = b"NATS/1.0";

/// The longest delay or life that can be asked for: a hundred years.
const MAX_SECONDS: u64 = 100 * 366 * 24 * 3600;

/// What the headers of a message ask for.
#[derive(Debug)]
pub(super) struct Wishes<'a> {
    pub level: Level,
    pub key: &'a str,
    pub tags: String,
    pub delay_ms: u64,
    pub ttl_ms: u64,
    /// All other headers, a line each.
    pub others: Vec<u8>,
}

impl Default for Wishes<'_> {
    fn default() -> Self {
        Self {
            level: Level::NORMAL,
            key: "",
            tags: String::new(),
            delay_ms: 0,
            ttl_ms: 0,
            others: Vec::new(),
        }
    }
}

/// Reads the header block of a SEND.
pub(super) fn read(block: &[u8]) -> Result<Wishes<'_>, Refusal> {
    let mut wishes = Wishes::default();
    let mut seen = [false; 5];
    for line in lines(block)? {
        let (name, value) = line?;
        let known = KNOWN.iter().position(|known| name.eq_ignore_ascii_case(known));
        let Some(which) = known else {
            // What mq9 says of a message must not be said by its sender.
            if name.get(..4).is_some_and(|start| start.eq_ignore_ascii_case(b"mq9-")) {
                let name = String::from_utf8_lossy(name);
                return Err(format!("{name} is not a header that SEND knows").into());
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
            1 => wishes.delay_ms = seconds(name, value)?,
            2 => wishes.ttl_ms = seconds(name, value)?,
            3 => wishes.tags = tags(value)?,
            _ => wishes.level = Level::named(value).ok_or_else(|| priority_problem(name, value))?,
        }
    }
    Ok(wishes)
}

const KNOWN: [&[u8]; 5] = [b"mq9-key", b"mq9-delay", b"mq9-ttl", b"mq9-tags", b"mq9-priority"];

pub(super) fn priority_problem(name: &str, value: &str) -> String {
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
        rest = match memchr::memchr(b'\n', body) {
            Some(feed) => &body[feed + 1..],
            None => b"",
        };
    }
    Ok(std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let feed = memchr::memchr(b'\n', rest).unwrap_or(rest.len() - 1);
        let line = rest[..feed].strip_suffix(b"\r").unwrap_or(&rest[..feed]);
        rest = &rest[feed + 1..];
        Some(match memchr::memchr(b':', line) {
            Some(colon @ 1..) => Ok((&line[..colon], line[colon + 1..].trim_ascii())),
            _ => Err(format!(
                "the header line {:?} is malformed: it must be \"Name: value\"",
                String::from_utf8_lossy(&line[..line.len().min(80)])
            )
            .into()),
        })
    }))
}

/// The headers a message was stored with, name and value.
pub(super) fn stored(headers: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    headers.split(|&byte| byte == b'\n').filter_map(|line| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let colon = memchr::memchr(b':', line)?;
        Some((&line[..colon], line[colon + 1..].trim_ascii()))
    })
}

fn seconds(name: &str, value: &str) -> Result<u64, Refusal> {
    match value.parse::<u64>() {
        Ok(seconds) if seconds <= MAX_SECONDS => Ok(seconds * 1000),
        _ => Err(format!(
            "{name} is {value:?}: it must be a whole number of seconds from 0 to {MAX_SECONDS}"
        )
        .into()),
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
