//! Parses what a NATS server sends to a client. Knows no socket.

use thiserror::Error;

/// A line longer than this is not of a NATS server.
const MAX_LINE: usize = 1 << 16;
/// Nor is a message.
const MAX_MESSAGE: usize = 65 << 20;

/// Something that the server said.
#[derive(Debug, PartialEq, Eq)]
pub enum Said {
    /// Who it is, as JSON.
    Info(Vec<u8>),
    /// It wants to know whether we live.
    Ping,
    /// It lives.
    Pong,
    /// What we said was wrong.
    Refused(String),
    /// A message for one of our subscriptions.
    Message(Message),
}

/// A message.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Where it was sent to.
    pub subject: String,
    /// The number that the subscription was given.
    pub sid: u64,
    /// Where an answer goes; empty for nowhere.
    pub reply: String,
    /// With their first line; empty without any.
    pub headers: String,
    /// What it says.
    pub payload: Vec<u8>,
}

impl Message {
    /// The number behind `NATS/1.0`, which servers use instead of a payload.
    pub fn status(&self) -> Option<u16> {
        self.headers.lines().next()?.split_ascii_whitespace().nth(1)?.parse().ok()
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut pairs = self.headers.lines().filter_map(|line| line.split_once(':'));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value.trim())
    }
}

/// The bytes are not of a NATS server.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("this is no NATS server: {0}")]
pub struct Malformed(&'static str);

/// Bytes that are not understood yet.
#[derive(Debug, Default)]
pub struct Reader {
    bytes: Vec<u8>,
    taken: usize,
}

impl Reader {
    /// More bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next thing that was said in full.
    pub fn take(&mut self) -> Result<Option<Said>, Malformed> {
        loop {
            let rest = &self.bytes[self.taken..];
            let Some(end) = memchr::memchr(b'\n', rest) else {
                return if rest.len() > MAX_LINE {
                    Err(Malformed("a line without end"))
                } else {
                    Ok(None)
                };
            };
            let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
            let line = str::from_utf8(line).map_err(|_| Malformed("a line that is no text"))?;
            let (word, arguments) = line.split_once([' ', '\t']).unwrap_or((line, ""));
            let said = match word.to_ascii_uppercase().as_str() {
                "+OK" => None,
                "PING" => Some(Said::Ping),
                "PONG" => Some(Said::Pong),
                "INFO" => Some(Said::Info(arguments.as_bytes().to_vec())),
                "-ERR" => Some(Said::Refused(arguments.trim_matches('\'').to_owned())),
                "MSG" | "HMSG" => {
                    let has_headers = word.len() == 4;
                    let Some((message, bytes)) = message(has_headers, arguments, &rest[end + 1..])?
                    else {
                        return Ok(None);
                    };
                    self.taken += end + 1 + bytes;
                    return Ok(Some(Said::Message(message)));
                }
                _ => return Err(Malformed("an unknown word")),
            };
            self.taken += end + 1;
            if said.is_some() {
                return Ok(said);
            }
        }
    }
}

/// The message whose first line this is, and how many bytes it has behind that line.
fn message(
    has_headers: bool,
    arguments: &str,
    rest: &[u8],
) -> Result<Option<(Message, usize)>, Malformed> {
    let malformed = Malformed("a message without its sizes");
    let words: Vec<&str> = arguments.split_ascii_whitespace().collect();
    let sizes = 1 + usize::from(has_headers);
    let Some((named, sizes)) = words.len().checked_sub(sizes).map(|at| words.split_at(at)) else {
        return Err(malformed);
    };
    let (subject, sid, reply) = match *named {
        [subject, sid] => (subject, sid, ""),
        [subject, sid, reply] => (subject, sid, reply),
        _ => return Err(malformed),
    };
    let sizes: Vec<usize> = sizes.iter().filter_map(|size| size.parse().ok()).collect();
    let (headers, total) = match *sizes {
        [total] if !has_headers => (0, total),
        [headers, total] if has_headers && headers <= total => (headers, total),
        _ => return Err(malformed),
    };
    if total > MAX_MESSAGE {
        return Err(Malformed("a message larger than any"));
    }
    let Some(body) = rest.get(..total + 2) else { return Ok(None) };
    let message = Message {
        subject: subject.to_owned(),
        sid: sid.parse().map_err(|_| Malformed("a subscription without a number"))?,
        reply: reply.to_owned(),
        headers: String::from_utf8_lossy(&body[..headers]).into_owned(),
        payload: body[headers..total].to_vec(),
    };
    Ok(Some((message, total + 2)))
}

/// Appends a message to what is to be sent; `headers` without their first line.
pub fn publish(
    out: &mut Vec<u8>,
    subject: &str,
    reply: &str,
    headers: &[(&str, &str)],
    payload: &[u8],
) {
    let mut block = String::new();
    if !headers.is_empty() {
        block.push_str("NATS/1.0\r\n");
        for (name, value) in headers {
            block.extend([*name, ": ", *value, "\r\n"]);
        }
        block.push_str("\r\n");
    }
    let space = if reply.is_empty() { "" } else { " " };
    let (head, total) = (block.len(), block.len() + payload.len());
    let line = match headers.is_empty() {
        true => format!("PUB {subject} {reply}{space}{total}\r\n"),
        false => format!("HPUB {subject} {reply}{space}{head} {total}\r\n"),
    };
    for part in [line.as_bytes(), block.as_bytes(), payload, b"\r\n"] {
        out.extend_from_slice(part);
    }
}
