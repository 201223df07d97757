//! The frames a server sends, read from a buffer one at a time. Knows no socket.

use crate::failure::Failure;

/// No server that is measured sends a longer line; a longer one is not NATS.
const MAX_LINE: usize = 64 * 1024;

/// One frame from the server.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// `MSG` or `HMSG`.
    Message(Message<'a>),
    /// `PING`, to be answered.
    Ping,
    /// `PONG`.
    Pong,
    /// `INFO` or `+OK`, of no interest here.
    Other,
}

/// What was delivered.
#[derive(Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The subject it was published to.
    pub subject: &'a [u8],
    /// The reply subject, empty when there is none.
    pub reply: &'a [u8],
    /// The header block, empty when there is none.
    pub headers: &'a [u8],
    /// The payload.
    pub payload: &'a [u8],
}

/// The first frame of `input` and its length, or nothing while it is incomplete.
pub fn first(input: &[u8]) -> Result<Option<(Frame<'_>, usize)>, Failure> {
    let Some(end) = memchr::memchr(b'\n', input) else {
        if input.len() > MAX_LINE {
            return Err(Failure::Server(format!("sent a line longer than {MAX_LINE} bytes")));
        }
        return Ok(None);
    };
    let line = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]);
    let length = end + 1;
    let (arguments, with_headers) = match line.strip_prefix(b"H") {
        Some(line) => (line.strip_prefix(b"MSG "), true),
        None => (line.strip_prefix(b"MSG "), false),
    };
    if let Some(arguments) = arguments {
        return message(arguments, with_headers, line, &input[length..])
            .map(|found| found.map(|(message, used)| (Frame::Message(message), length + used)));
    }
    match line {
        b"PING" => Ok(Some((Frame::Ping, length))),
        b"PONG" => Ok(Some((Frame::Pong, length))),
        b"+OK" => Ok(Some((Frame::Other, length))),
        _ if line.starts_with(b"INFO ") => Ok(Some((Frame::Other, length))),
        _ => Err(Failure::Server(format!("sent {:?}", String::from_utf8_lossy(line)))),
    }
}

fn message<'a>(
    arguments: &'a [u8],
    with_headers: bool,
    line: &[u8],
    rest: &'a [u8],
) -> Result<Option<(Message<'a>, usize)>, Failure> {
    let wrong = || Failure::Server(format!("sent {:?}", String::from_utf8_lossy(line)));
    let mut words = [&arguments[..0]; 5];
    let mut count = 0;
    for word in arguments.split(|&byte| byte == b' ') {
        *words.get_mut(count).ok_or_else(wrong)? = word;
        count += 1;
    }
    // Subject, sid, perhaps a reply subject, perhaps the size of the headers, size.
    let required = if with_headers { 4 } else { 3 };
    let reply = match count {
        _ if count == required => &arguments[..0],
        _ if count == required + 1 => words[2],
        _ => return Err(wrong()),
    };
    let size = number(words[count - 1]).ok_or_else(wrong)?;
    let headers = if with_headers { number(words[count - 2]).ok_or_else(wrong)? } else { 0 };
    let Some(body) = rest.get(..size + 2) else { return Ok(None) };
    if &body[size..] != b"\r\n" {
        return Err(Failure::Server(format!("sent a payload longer than {size} bytes")));
    }
    let (headers, payload) = body[..size].split_at_checked(headers).ok_or_else(wrong)?;
    Ok(Some((Message { subject: words[0], reply, headers, payload }, size + 2)))
}

fn number(word: &[u8]) -> Option<usize> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_read_only_when_it_is_complete() {
        let input = b"MSG a.b 1 r 5\r\nhello\r\n";
        for length in 0..input.len() {
            assert_eq!(first(&input[..length]).unwrap(), None, "{length} bytes");
        }
        let message = Message { subject: b"a.b", reply: b"r", headers: b"", payload: b"hello" };
        assert_eq!(first(input).unwrap(), Some((Frame::Message(message), input.len())));
    }

    #[test]
    fn a_message_without_reply_is_read_and_what_follows_is_left() {
        let input = b"MSG a 17 0\r\n\r\nPING\r\n";
        let message = Message { subject: b"a", reply: b"", headers: b"", payload: b"" };
        assert_eq!(first(input).unwrap(), Some((Frame::Message(message), 14)));
        assert_eq!(first(&input[14..]).unwrap(), Some((Frame::Ping, 6)));
    }

    #[test]
    fn headers_are_cut_from_the_payload() {
        for (input, reply) in [
            (&b"HMSG a 1 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"[..], &b""[..]),
            (b"HMSG a 1 r 12 14\r\nNATS/1.0\r\n\r\nhi\r\n", b"r"),
        ] {
            let headers = b"NATS/1.0\r\n\r\n";
            let message = Message { subject: b"a", reply, headers, payload: b"hi" };
            assert_eq!(first(input).unwrap(), Some((Frame::Message(message), input.len())));
        }
    }

    #[test]
    fn lines_of_no_interest_are_passed_over() {
        assert_eq!(first(b"INFO {}\r\n").unwrap(), Some((Frame::Other, 9)));
        assert_eq!(first(b"+OK\r\nPONG\r\n").unwrap(), Some((Frame::Other, 5)));
    }

    #[test]
    fn errors_and_nonsense_end_the_run() {
        for input in [
            &b"-ERR 'Slow Consumer'\r\n"[..],
            b"HMSG a 1 16\r\n",
            b"HMSG a 1 4 2\r\nab\r\n",
            b"MSG a 1 r 1 2 3\r\n",
            b"MSG a 1\r\n",
            b"MSG a 1 x\r\n",
            b"MSG a 1 1\r\nab\r\n",
        ] {
            assert!(first(input).is_err(), "{}", String::from_utf8_lossy(input));
        }
        assert!(first(&vec![b'x'; MAX_LINE + 1]).is_err());
    }
}
