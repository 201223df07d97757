//! Mailboxes and messages of the model.

use mq9_core::mailbox::{Discard, LEVELS, Policy};
use mq9_core::store::Start;

use crate::groups::Group;
use crate::model::Refusal;

/// Bytes that a stored message takes besides its texts and payload.
const OVERHEAD: usize = 62;
/// A message with everything a client may see of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Message {
    pub msg_id: u64,
    pub level: u8,
    pub sent_ms: u64,
    /// When it got its `msg_id`; while delayed, when it will.
    pub create_ms: u64,
    pub expires_ms: u64,
    pub address: String,
    pub key: String,
    pub tags: String,
    pub headers: String,
    pub payload: Vec<u8>,
}

impl Message {
    pub fn bytes(&self) -> u64 {
        let texts = [&self.address, &self.key, &self.tags, &self.headers];
        (OVERHEAD + texts.map(|text| text.len()).iter().sum::<usize>() + self.payload.len()) as u64
    }
}

/// A message in a reply, and how often the group has been given it.
pub type Seen = (Message, u32);

pub struct Mailbox {
    pub address: String,
    pub policy: Policy,
    pub next_id: u64,
    /// By `msg_id`.
    pub messages: Vec<Message>,
    pub groups: Vec<Group>,
    pub created_ms: u64,
    pub expires_ms: u64,
    /// In the order they were sent.
    pub delayed: Vec<Message>,
    pub next_delay: u64,
    /// Id, time and `msg_id` of sends.
    pub sent_ids: Vec<(String, u64, Option<u64>)>,
    pub reserved_ids: u64,
}

/// The first messages, as many as fit.
pub fn cut<'m>(messages: impl Iterator<Item = &'m Message>, most: usize, bytes: u64) -> Vec<Seen> {
    let mut batch: Vec<Seen> = Vec::new();
    let mut total = 0;
    for message in messages {
        total += message.bytes();
        if batch.len() >= most || (total > bytes && !batch.is_empty()) {
            break;
        }
        batch.push((message.clone(), 0));
    }
    batch
}

impl Mailbox {
    pub fn dedup_window(&self) -> u64 {
        match self.policy.dedup_window_ms {
            0 => 120_000,
            ms => ms,
        }
    }

    pub fn bytes(&self) -> u64 {
        self.messages.iter().chain(&self.delayed).map(Message::bytes).sum()
    }

    /// Whether it holds more than it may and lets the oldest go.
    pub fn has_surplus(&self) -> bool {
        let Policy { max_msgs, max_bytes, .. } = self.policy;
        if self.policy.latest {
            return self.messages.len() > 1;
        }
        let count = (self.messages.len() + self.delayed.len()) as u64;
        let over =
            (max_msgs > 0 && count > max_msgs) || (max_bytes > 0 && self.bytes() > max_bytes);
        over && self.policy.discard == Discard::Old
    }

    /// The messages that must go for one of `bytes` bytes; the one of `key` goes in any case.
    pub fn room_for(&self, bytes: u64, key: &str) -> Result<Vec<u64>, Refusal> {
        let Policy { max_msgs, max_bytes, .. } = self.policy;
        if self.policy.latest {
            return Ok(Vec::new());
        }
        let (replaced, mut kept): (Vec<&Message>, Vec<&Message>) =
            self.messages.iter().partition(|message| !key.is_empty() && message.key == key);
        let mut evicted = Vec::new();
        let mut count = (kept.len() + self.delayed.len() + 1) as u64;
        let mut total = self.bytes() + bytes - replaced.iter().map(|m| m.bytes()).sum::<u64>();
        while (max_msgs > 0 && count > max_msgs) || (max_bytes > 0 && total > max_bytes) {
            if self.policy.discard == Discard::New || kept.is_empty() {
                return Err(Refusal::Full);
            }
            let oldest = kept.remove(0);
            evicted.push(oldest.msg_id);
            count -= 1;
            total -= oldest.bytes();
        }
        Ok(evicted)
    }

    /// Per level, the first `msg_id` that reading from `start` on may give.
    pub fn first_ids(&self, start: Start) -> [u64; LEVELS] {
        std::array::from_fn(|index| match start {
            Start::Latest => self.next_id,
            Start::Earliest => 0,
            Start::Id(msg_id) => msg_id,
            Start::Since(ms) => {
                let mut lane = self.messages.iter().filter(|m| usize::from(m.level) == index + 1);
                lane.find(|m| m.create_ms >= ms).map_or(self.next_id, |m| m.msg_id)
            }
        })
    }
}
