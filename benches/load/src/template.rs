//! A request over NATS of which only a few bytes change: the token in the reply subject, which names
//! it, its number wherever [`NUMBER`] stands, and its priority.

use memchr::memmem;

/// Hexadecimal digits that name a request: four for its slot, eight for its number there.
pub const TOKEN: usize = 12;

/// Stands for the number of a request.
pub const NUMBER: &str = "%%%%%%%%%%%%";

const PRIORITY: &str = "NATS/1.0\r\nmq9-priority: ";

/// The bytes, and where they change.
#[derive(Debug)]
pub struct Template {
    bytes: Vec<u8>,
    in_reply: usize,
    numbers: Vec<usize>,
    priority: usize,
    /// One digit for each priority in turn; none where requests have no priority.
    priorities: Vec<u8>,
    /// The number in the subject begins again after so many.
    subjects: u64,
}

impl Template {
    /// A request to `subject` whose answer comes to a subject below `inbox`.
    pub fn new(subject: &str, inbox: &str, body: &str, priorities: &[u8]) -> Self {
        let (verb, headers) = match priorities {
            [] => ("PUB", String::new()),
            _ => ("HPUB", format!("{PRIORITY}0\r\n\r\n")),
        };
        let mut bytes = format!("{verb} {subject} {inbox}.").into_bytes();
        let in_reply = bytes.len();
        bytes.resize(in_reply + TOKEN, b'0');
        if !headers.is_empty() {
            bytes.extend_from_slice(format!(" {}", headers.len()).as_bytes());
        }
        bytes.extend_from_slice(format!(" {}\r\n", headers.len() + body.len()).as_bytes());
        let priority = bytes.len() + PRIORITY.len();
        for part in [&headers, body, "\r\n"] {
            bytes.extend_from_slice(part.as_bytes());
        }
        let numbers = places(&bytes);
        Self {
            bytes,
            in_reply,
            numbers,
            priority,
            priorities: priorities.to_vec(),
            subjects: u64::MAX,
        }
    }

    /// The same with so many subjects in turn, where the number stands in the subject.
    pub fn with_subjects(self, subjects: u64) -> Self {
        Self { subjects, ..self }
    }

    /// The request with this name and number; `content` stands where the number does.
    pub fn with(&mut self, name: [u8; TOKEN], number: u64, content: [u8; TOKEN]) -> &[u8] {
        self.bytes[self.in_reply..][..TOKEN].copy_from_slice(&name);
        for &at in &self.numbers {
            let content =
                if at < self.in_reply { self.in_subject(number, content) } else { content };
            self.bytes[at..][..TOKEN].copy_from_slice(&content);
        }
        if !self.priorities.is_empty() {
            let turn = number % self.priorities.len() as u64;
            self.bytes[self.priority] = self.priorities[turn as usize];
        }
        &self.bytes
    }

    fn in_subject(&self, number: u64, content: [u8; TOKEN]) -> [u8; TOKEN] {
        if self.subjects == u64::MAX { content } else { hexadecimal(number % self.subjects) }
    }
}

/// Where the number stands in `bytes`.
pub fn places(bytes: &[u8]) -> Vec<usize> {
    memmem::find_iter(bytes, NUMBER).collect()
}

/// A body of `size` bytes that begins with the number.
pub fn body(size: usize) -> String {
    format!("{NUMBER}{}", "x".repeat(size.saturating_sub(TOKEN)))
}

/// A number in as many digits as a token has.
pub fn hexadecimal(value: u64) -> [u8; TOKEN] {
    std::array::from_fn(|at| b"0123456789abcdef"[(value >> (4 * (TOKEN - 1 - at)) & 15) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_carries_its_name_and_its_number() {
        let mut template = Template::new("bench.service", "_INBOX.a", &body(13), b"");
        let expected = b"PUB bench.service _INBOX.a.001200000003 13\r\n0000000000ffx\r\n";
        assert_eq!(template.with(*b"001200000003", 255, hexadecimal(255)), expected);
    }

    #[test]
    fn the_number_stands_wherever_it_belongs() {
        let (subject, body) = (format!("a.{NUMBER}"), format!("{{\"name\":\"{NUMBER}\"}}"));
        let mut template = Template::new(&subject, "i", &body, b"");
        let expected = b"PUB a.00000000000a i.0123456789ab 23\r\n{\"name\":\"00000000000a\"}\r\n";
        assert_eq!(template.with(*b"0123456789ab", 10, hexadecimal(10)), expected);
    }

    #[test]
    fn subjects_take_turns() {
        let subject = format!("a.{NUMBER}");
        let mut template = Template::new(&subject, "i", &body(12), b"").with_subjects(10);
        let expected = b"PUB a.000000000003 i.0123456789ab 12\r\n00000000000d\r\n";
        assert_eq!(template.with(*b"0123456789ab", 13, hexadecimal(13)), expected);
    }

    #[test]
    fn priorities_take_turns() {
        let mut template = Template::new("a", "i", &body(12), b"159");
        for (number, priority) in [(0, '1'), (1, '5'), (2, '9'), (3, '1')] {
            let bytes = template.with([b'0'; TOKEN], number, [b'1'; TOKEN]).to_vec();
            let headers = format!("NATS/1.0\r\nmq9-priority: {priority}\r\n\r\n");
            let (length, total) = (headers.len(), headers.len() + 12);
            let expected =
                format!("HPUB a i.000000000000 {length} {total}\r\n{headers}111111111111\r\n");
            assert_eq!(String::from_utf8(bytes).unwrap(), expected);
        }
    }
}
