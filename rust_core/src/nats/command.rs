//! One command of a client at the front of its bytes, or how many more bytes that takes.
//!
//! A decoder without state: the caller keeps what is incomplete and asks again when there is more.
//! The verdict on a prefix of the input never depends on where the input was split, because it
//! depends on the bytes alone: input that can no longer become a command is a fault at once.

use memchr::{memchr, memchr3_iter};

/// A client's command. Text is as it came: subjects need not be valid, nor UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command<'a> {
    /// `PUB` or `HPUB`, its line only.
    Publish(Publish<'a>),
    /// `SUB subject [queue] sid`.
    Subscribe {
        /// What to listen to.
        subject: &'a [u8],
        /// The queue group to join; empty for none.
        queue: &'a [u8],
        /// The client's name for the subscription.
        sid: &'a [u8],
    },
    /// `UNSUB sid [max]`.
    Unsubscribe {
        /// The subscription.
        sid: &'a [u8],
        /// Deliveries after which it ends; 0 for now.
        max: u64,
    },
    /// `PING`.
    Ping,
    /// `PONG`.
    Pong,
    /// `CONNECT`, with its JSON text.
    Connect(&'a [u8]),
    /// `INFO` from a client, with its JSON text.
    Info(&'a [u8]),
    /// `+OK` from a client.
    Ok,
    /// `-ERR` from a client.
    Err,
}

/// The line of a `PUB` or `HPUB`; `headers + payload` bytes and CRLF follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Publish<'a> {
    /// Where to.
    pub subject: &'a [u8],
    /// Where an answer is expected; empty for nowhere.
    pub reply: &'a [u8],
    /// Whether it is an `HPUB`.
    pub with_headers: bool,
    /// Bytes of headers, 0 for `PUB`.
    pub headers: usize,
    /// Bytes of headers and payload together.
    pub size: usize,
}

/// What is at the front of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// A command and the length of its line, line feed included.
    Command(Command<'a>, usize),
    /// The line is not complete.
    Incomplete,
    /// No command can begin like this.
    Fault(Fault),
}

/// Why input is not a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// There is no such operation: the client is told.
    Unknown,
    /// The line is longer than allowed: the client is told.
    TooLong,
    /// The arguments are wrong in number or form: the connection ends without a word.
    Arguments,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Anything up to the line feed is ignored.
    Bare,
    /// Arguments may follow at once.
    Loose,
    /// A blank comes first.
    Spaced,
}

const OPERATIONS: [(&[u8], Form); 10] = [
    (b"PUB", Form::Spaced),
    (b"HPUB", Form::Spaced),
    (b"SUB", Form::Spaced),
    (b"UNSUB", Form::Spaced),
    (b"PING", Form::Bare),
    (b"PONG", Form::Bare),
    (b"CONNECT", Form::Loose),
    (b"INFO", Form::Spaced),
    (b"+OK", Form::Bare),
    (b"-ERR", Form::Spaced),
];

/// The command at the front of `input`, whose arguments may have `max_line` bytes.
pub fn decode(input: &[u8], max_line: usize) -> Decoded<'_> {
    let (name, form) = match operation(input) {
        Ok(Some(found)) => found,
        Ok(None) => return Decoded::Incomplete,
        Err(fault) => return Decoded::Fault(fault),
    };
    let mut start = name.len();
    if form == Form::Spaced {
        match input.get(start) {
            None => return Decoded::Incomplete,
            Some(b' ' | b'\t') => {}
            Some(_) => return Decoded::Fault(Fault::Unknown),
        }
    }
    let mut search = start;
    if form != Form::Bare {
        while let Some(b' ' | b'\t') = input.get(start) {
            start += 1;
        }
        // Arguments have at least one byte: a line feed in its place belongs to them.
        search = start + 1;
        if start - name.len() > max_line {
            return Decoded::Fault(Fault::TooLong);
        }
    }
    let feed = input.get(search..).and_then(|rest| memchr(b'\n', rest)).map(|at| search + at);
    let mut arguments = input.get(start..feed.unwrap_or(input.len())).unwrap_or_default();
    // A carriage return takes the last byte away, which is itself unless it came earlier.
    if memchr(b'\r', arguments.get(1..).unwrap_or_default()).is_some() {
        arguments = &arguments[..arguments.len() - 1];
    }
    if arguments.len() > max_line {
        return Decoded::Fault(Fault::TooLong);
    }
    let Some(feed) = feed else { return Decoded::Incomplete };
    match command(name, arguments) {
        Some(command) => Decoded::Command(command, feed + 1),
        None => Decoded::Fault(Fault::Arguments),
    }
}

/// The operation that `input` begins with, if enough of it is there.
fn operation(input: &[u8]) -> Result<Option<(&'static [u8], Form)>, Fault> {
    let mut possible = false;
    for &(name, form) in &OPERATIONS {
        let seen = input.len().min(name.len());
        if input[..seen].eq_ignore_ascii_case(&name[..seen]) {
            if seen == name.len() {
                return Ok(Some((name, form)));
            }
            possible = true;
        }
    }
    if possible { Ok(None) } else { Err(Fault::Unknown) }
}

fn command<'a>(name: &[u8], arguments: &'a [u8]) -> Option<Command<'a>> {
    Some(match name {
        b"PUB" => match split(arguments)? {
            ([subject, size, ..], 2) => publish(subject, b"", None, size)?,
            ([subject, reply, size, _], 3) => publish(subject, reply, None, size)?,
            _ => return None,
        },
        b"HPUB" => match split(arguments)? {
            ([subject, headers, size, _], 3) => publish(subject, b"", Some(headers), size)?,
            ([subject, reply, headers, size], 4) => publish(subject, reply, Some(headers), size)?,
            _ => return None,
        },
        b"SUB" => match split(arguments)? {
            ([subject, sid, ..], 2) => Command::Subscribe { subject, queue: b"", sid },
            ([subject, queue, sid, _], 3) => Command::Subscribe { subject, queue, sid },
            _ => return None,
        },
        b"UNSUB" => match split(arguments)? {
            ([sid, ..], 1) => Command::Unsubscribe { sid, max: 0 },
            ([sid, max, ..], 2) => Command::Unsubscribe { sid, max: size(max).unwrap_or(0) as u64 },
            _ => return None,
        },
        b"PING" => Command::Ping,
        b"PONG" => Command::Pong,
        b"CONNECT" => Command::Connect(arguments),
        b"INFO" => Command::Info(arguments),
        b"+OK" => Command::Ok,
        _ => Command::Err,
    })
}

fn publish<'a>(
    subject: &'a [u8],
    reply: &'a [u8],
    headers: Option<&[u8]>,
    total: &[u8],
) -> Option<Command<'a>> {
    let size_of_all = size(total)?;
    let size_of_headers = headers.map_or(Some(0), size)?;
    (size_of_headers <= size_of_all).then_some(Command::Publish(Publish {
        subject,
        reply,
        with_headers: headers.is_some(),
        headers: size_of_headers,
        size: size_of_all,
    }))
}

/// Up to four words and their number; nothing if there are more.
fn split(arguments: &[u8]) -> Option<([&[u8]; 4], usize)> {
    let mut words: [&[u8]; 4] = [b""; 4];
    let mut count = 0;
    // A line feed can only be the first byte: another one would have ended the line.
    let mut start = usize::from(arguments.first() == Some(&b'\n'));
    let blanks = memchr3_iter(b' ', b'\t', b'\r', arguments);
    for end in blanks.chain([arguments.len()]) {
        if end > start {
            *words.get_mut(count)? = &arguments[start..end];
            count += 1;
        }
        start = end + 1;
    }
    Some((words, count))
}

/// A size: up to nine digits.
fn size(digits: &[u8]) -> Option<usize> {
    if digits.is_empty() || digits.len() > 9 {
        return None;
    }
    digits.iter().try_fold(0, |value, &digit| {
        digit.is_ascii_digit().then(|| value * 10 + usize::from(digit - b'0'))
    })
}
