//! Losses with a whole segment, or with its end: counted by mailbox, not told message by message.

use super::indexes::SlotIx;
use std::collections::BTreeMap;
use std::fmt;

/// So many mailboxes are named.
const NAMED: usize = 8;

/// Messages that lay in a segment, or in the part of it, that is gone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lost {
    /// Messages of all mailboxes.
    pub messages: u64,
    /// Mailboxes that lost any.
    pub mailboxes: u64,
    /// Those that lost most, the most first.
    pub most: Vec<LostIn>,
}

/// What one mailbox lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostIn {
    /// Its address.
    pub mailbox: String,
    /// How many messages, delayed ones included.
    pub messages: u64,
    /// The lowest and the highest `msg_id` among them; others in between may be sound.
    pub msg_ids: Option<(u64, u64)>,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count| if count == 1 { "" } else { "s" };
        let (messages, verb) = (self.messages, if self.messages == 1 { "is" } else { "are" });
        write!(f, "{messages} message{} {verb} lost", plural(messages))?;
        for (at, LostIn { mailbox, messages, msg_ids }) in self.most.iter().enumerate() {
            write!(f, "{} {messages} of {mailbox}", if at == 0 { ":" } else { "," })?;
            match msg_ids {
                Some((first, last)) if first == last => write!(f, " (msg_id {first})")?,
                Some((first, last)) => write!(f, " (msg_id {first} to {last})")?,
                None => {}
            }
        }
        match self.mailboxes.saturating_sub(self.most.len() as u64) {
            0 => Ok(()),
            1 => write!(f, ", the others of another mailbox"),
            others => write!(f, ", the others of {others} other mailboxes"),
        }
    }
}

/// Losses being counted, by segment and then by the mailbox's slot.
#[derive(Default)]
pub struct Losses(BTreeMap<u32, BTreeMap<SlotIx, LostIn>>);

impl Losses {
    /// Counts in a message; `msg_id` is `None` for one that was delayed.
    pub fn add(
        &mut self,
        segment: u32,
        slot: SlotIx,
        msg_id: Option<u64>,
        address: impl Fn() -> String,
    ) {
        let of = self.0.entry(segment).or_default().entry(slot);
        let of = of.or_insert_with(|| LostIn { mailbox: address(), messages: 0, msg_ids: None });
        of.messages += 1;
        if let Some(id) = msg_id {
            let (first, last) = of.msg_ids.unwrap_or((id, id));
            of.msg_ids = Some((first.min(id), last.max(id)));
        }
    }

    /// What was lost, by segment.
    pub fn finish(self) -> impl Iterator<Item = (u32, Lost)> {
        self.0.into_iter().map(|(segment, by_slot)| {
            let mut most: Vec<LostIn> = by_slot.into_values().collect();
            let (messages, mailboxes) =
                (most.iter().map(|of| of.messages).sum(), most.len() as u64);
            most.sort_by_key(|of| std::cmp::Reverse(of.messages));
            most.truncate(NAMED);
            (segment, Lost { messages, mailboxes, most })
        })
    }
}
