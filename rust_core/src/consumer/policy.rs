//! The policy of a consumer, as far as messages are concerned.
//!
//! On disk it is a list of the fields that differ from the default, each a tag and a value: tags below 128 carry eight
//! bytes, others a short text. A tag may come several times where there is a list. Tags are never reused.

use crate::wire::bytes::{Put, Reader};

/// What a consumer has to say of a message that it was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AckPolicy {
    /// That it has done with this one.
    #[default]
    Explicit,
    /// That it has done with all up to this one.
    All,
    /// Nothing.
    None,
}

/// How a consumer behaves. Zero means no limit wherever a limit is meant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConsumerPolicy {
    /// What has to be acknowledged.
    pub ack: AckPolicy,
    /// How long it may hold a message.
    pub ack_wait_ms: u64,
    /// How long it may hold a message the first time, the second, and so on; empty for `ack_wait_ms` always.
    pub backoff_ms: Vec<u64>,
    /// Most deliveries of a message.
    pub max_deliver: u32,
    /// Most messages that are out.
    pub max_ack_pending: u32,
    /// Most requests that wait.
    pub max_waiting: u32,
    /// Most messages of a request.
    pub max_batch: u64,
    /// Longest wait of a request.
    pub max_expires_ms: u64,
    /// Most bytes of a request.
    pub max_bytes: u64,
    /// It goes when nobody has used it for so long.
    pub inactive_ms: u64,
    /// Payloads stay behind.
    pub headers_only: bool,
    /// It is given messages without asking.
    pub push: bool,
    /// Subjects of the messages it wants; empty for all.
    pub filters: Vec<Box<str>>,
    /// What it gives up goes to this subject, behind which stands that of the message.
    pub dead_letter_prefix: Option<Box<str>>,
}

/// The longest text of a policy, in bytes.
pub const MAX_TEXT: usize = 255;
/// The longest policy, encoded, in bytes.
pub const MAX_POLICY: usize = 60_000;

const TEXT: u8 = 128;
const BACKOFF: u8 = 12;
const FILTER: u8 = TEXT;
const DEAD_LETTER_PREFIX: u8 = TEXT + 1;

impl ConsumerPolicy {
    /// How long a message may be held that was given for the n-th time.
    pub fn hold_ms(&self, count: u32) -> u64 {
        let at = (count.max(1) as usize - 1).min(self.backoff_ms.len().saturating_sub(1));
        self.backoff_ms.get(at).copied().unwrap_or(self.ack_wait_ms)
    }

    /// Why it cannot be recorded, if it cannot.
    pub fn problem(&self) -> Option<String> {
        let texts = self.filters.iter().chain(&self.dead_letter_prefix);
        if let Some(long) = texts.clone().map(|text| text.len()).find(|len| *len > MAX_TEXT) {
            return Some(format!("a subject of {long} bytes; at most {MAX_TEXT} are allowed"));
        }
        let numbers = 9 * (self.numbers().len() + self.backoff_ms.len());
        let len = numbers + texts.map(|text| 2 + text.len()).sum::<usize>();
        (len > MAX_POLICY)
            .then(|| format!("it takes {len} bytes; at most {MAX_POLICY} are allowed"))
    }

    fn numbers(&self) -> [(u8, u64); 11] {
        let ack = match self.ack {
            AckPolicy::Explicit => 0,
            AckPolicy::All => 1,
            AckPolicy::None => 2,
        };
        [
            (1, ack),
            (2, self.ack_wait_ms),
            (3, self.max_deliver.into()),
            (4, self.max_ack_pending.into()),
            (5, self.max_waiting.into()),
            (6, self.max_batch),
            (7, self.max_expires_ms),
            (8, self.max_bytes),
            (9, self.inactive_ms),
            (10, self.headers_only.into()),
            (11, self.push.into()),
        ]
    }

    /// Appends the encoded policy.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let numbers = self.numbers().into_iter().filter(|(_, value)| *value != 0);
        // A pause of nothing keeps its place among the others.
        let backoff = self.backoff_ms.iter().map(|ms| (BACKOFF, *ms));
        for (tag, value) in numbers.chain(backoff) {
            out.put_u8(tag);
            out.put_u64(value);
        }
        let filters = self.filters.iter().map(|filter| (FILTER, filter));
        let dead = self.dead_letter_prefix.iter().map(|prefix| (DEAD_LETTER_PREFIX, prefix));
        for (tag, text) in filters.chain(dead) {
            out.put_u8(tag);
            out.put_short(text.as_bytes());
        }
    }

    /// Reads an encoded policy; `Err` names a tag that this version does not know.
    pub fn decode(bytes: &[u8]) -> Result<Option<ConsumerPolicy>, u8> {
        let mut from = Reader::new(bytes);
        let mut policy = ConsumerPolicy::default();
        while let Some(tag) = from.u8() {
            let known = if tag < TEXT {
                let Some(value) = from.u64() else { return Ok(None) };
                policy.set_number(tag, value)
            } else {
                let Some(text) = from.short_str() else { return Ok(None) };
                policy.set_text(tag, text)
            };
            if !known {
                return Err(tag);
            }
        }
        Ok(Some(policy))
    }

    fn set_text(&mut self, tag: u8, text: &str) -> bool {
        match tag {
            FILTER => self.filters.push(text.into()),
            DEAD_LETTER_PREFIX => self.dead_letter_prefix = Some(text.into()),
            _ => return false,
        }
        true
    }

    fn set_number(&mut self, tag: u8, value: u64) -> bool {
        let small = u32::try_from(value).unwrap_or(u32::MAX);
        match tag {
            1 => {
                self.ack = match value {
                    0 => AckPolicy::Explicit,
                    1 => AckPolicy::All,
                    2 => AckPolicy::None,
                    _ => return false,
                }
            }
            2 => self.ack_wait_ms = value,
            3 => self.max_deliver = small,
            4 => self.max_ack_pending = small,
            5 => self.max_waiting = small,
            6 => self.max_batch = value,
            7 => self.max_expires_ms = value,
            8 => self.max_bytes = value,
            9 => self.inactive_ms = value,
            10 => self.headers_only = value != 0,
            11 => self.push = value != 0,
            BACKOFF => self.backoff_ms.push(value),
            _ => return false,
        }
        true
    }
}
