//! Writes what the server sends to a client.

/// A whole number as decimal text, without a heap.
#[derive(Debug, Clone, Copy)]
pub struct Number {
    digits: [u8; 20],
    start: u8,
}

/// The numbers from 00 to 99.
const PAIRS: &[u8; 200] = b"\
00010203040506070809101112131415161718192021222324252627282930313233343536373839\
40414243444546474849505152535455565758596061626364656667686970717273747576777879\
8081828384858687888990919293949596979899";

impl Number {
    /// The text of `value`.
    pub fn new(mut value: u64) -> Self {
        let mut digits = [0; 20];
        let mut start = digits.len();
        let mut put_pair = |start: &mut usize, pair: usize| {
            *start -= 2;
            digits[*start..*start + 2].copy_from_slice(&PAIRS[2 * pair..2 * pair + 2]);
        };
        // Four digits with each division that waits for another: every message that is written has some numbers.
        while value >= 10_000 {
            let four = (value % 10_000) as usize;
            value /= 10_000;
            put_pair(&mut start, four % 100);
            put_pair(&mut start, four / 100);
        }
        let mut rest = value as usize;
        if rest >= 100 {
            put_pair(&mut start, rest % 100);
            rest /= 100;
        }
        if rest >= 10 {
            put_pair(&mut start, rest);
        } else {
            start -= 1;
            digits[start] = b'0' + rest as u8;
        }
        Self { digits, start: start as u8 }
    }

    /// The digits.
    pub fn as_bytes(&self) -> &[u8] {
        &self.digits[usize::from(self.start)..]
    }
}

/// Appends `-ERR 'text'`.
pub fn err(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(b"-ERR '");
    out.extend_from_slice(text);
    out.extend_from_slice(b"'\r\n");
}

/// Appends the two parts of a `MSG` or `HMSG` line between which the subscription's id belongs, and
/// returns the length of the first.
pub fn msg_parts(
    line: &mut Vec<u8>,
    subject: &[u8],
    reply: &[u8],
    headers: usize,
    size: usize,
) -> usize {
    line.extend_from_slice(if headers > 0 { b"HMSG " } else { b"MSG " });
    line.extend_from_slice(subject);
    line.push(b' ');
    let before = line.len();
    line.push(b' ');
    if !reply.is_empty() {
        line.extend_from_slice(reply);
        line.push(b' ');
    }
    if headers > 0 {
        line.extend_from_slice(Number::new(headers as u64).as_bytes());
        line.push(b' ');
    }
    line.extend_from_slice(Number::new(size as u64).as_bytes());
    line.extend_from_slice(b"\r\n");
    before
}

/// Appends the message that tells a requester that nobody listens to `subject`.
pub fn no_responders(out: &mut Vec<u8>, reply: &[u8], sid: &[u8], subject: &[u8]) {
    const STATUS: &[u8] = b"NATS/1.0 503\r\nNats-Subject: ";
    let size = STATUS.len() + subject.len() + 4;
    let mut line = Vec::with_capacity(32 + reply.len());
    let before = msg_parts(&mut line, reply, b"", size, size);
    out.extend_from_slice(&line[..before]);
    out.extend_from_slice(sid);
    out.extend_from_slice(&line[before..]);
    out.extend_from_slice(STATUS);
    out.extend_from_slice(subject);
    out.extend_from_slice(b"\r\n\r\n\r\n");
}
