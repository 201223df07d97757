//! Looking at messages of a stream, a page at a time.

use super::fetch::Unread;
use super::stream::StreamKey;
use super::{Fetched, Store};
use crate::error::Result;
use crate::mailbox::{Entry, Level};

/// Most messages that are looked at for one page.
const LOOKED_AT: usize = 1 << 16;

/// Which messages of a stream to look at.
#[derive(Debug, Clone, Default)]
pub struct StreamQuery<'a> {
    /// What their subjects begin with; empty is any.
    pub prefixes: &'a [String],
    /// The first.
    pub from: u64,
    /// Only those before this one.
    pub before: Option<u64>,
    /// Most messages.
    pub limit: usize,
    /// Most bytes, never below one message.
    pub max_bytes: u64,
    /// The newest that fit instead of the oldest; ascending all the same.
    pub newest: bool,
}

/// A page of messages.
#[derive(Debug, Default)]
pub struct StreamPage {
    /// The messages, ascending.
    pub messages: Fetched,
    /// Where to go on for more, if there may be more.
    pub next: Option<u64>,
}

/// What is to be read, and where to go on.
type Found = (Vec<(Level, Entry, u32)>, Option<u64>);

impl Store {
    /// Messages of a stream, and where to go on; nothing of a stream that has gone.
    pub fn stream_page(&mut self, key: StreamKey, query: &StreamQuery<'_>) -> Result<StreamPage> {
        loop {
            let Some((found, next)) = self.find_in_stream(key, query) else {
                return Ok(StreamPage::default());
            };
            match self.read(key.slot, &found) {
                Ok(messages) => return Ok(StreamPage { messages, next }),
                // It is out of the index now.
                Err(Unread::Damaged) => {}
                Err(Unread::Failed(error)) => return Err(error),
            }
        }
    }

    fn find_in_stream(&self, key: StreamKey, query: &StreamQuery<'_>) -> Option<Found> {
        let mailbox = &self.state.slot_of(key.slot, key.number)?.mailbox;
        let before = query.before.unwrap_or(u64::MAX);
        let within = |(_, entry): &(Level, Entry)| (query.from..before).contains(&entry.msg_id);
        let all: Box<dyn Iterator<Item = (Level, Entry)>> = match query.newest {
            true => Box::new(mailbox.iter_back(before).take_while(within)),
            false => Box::new(mailbox.iter_from(query.from).take_while(within)),
        };
        let subjects = mailbox.subjects();
        let fits = |msg_id| {
            let known = subjects.and_then(|subjects| subjects.get(subjects.of(msg_id)?));
            let has =
                |prefix: &String| known.is_some_and(|known| known.subject.starts_with(&**prefix));
            query.prefixes.is_empty() || query.prefixes.iter().any(has)
        };
        let (mut found, mut bytes, mut next) = (Vec::new(), 0, None);
        for (looked_at, (level, entry)) in all.enumerate() {
            // Backwards, what comes next lies before this one.
            let here = entry.msg_id + u64::from(query.newest);
            if found.len() >= query.limit || looked_at >= LOOKED_AT {
                next = Some(here);
                break;
            }
            if !fits(entry.msg_id) {
                continue;
            }
            bytes += u64::from(entry.len);
            if bytes > query.max_bytes && !found.is_empty() {
                next = Some(here);
                break;
            }
            found.push((level, entry, 0));
        }
        if query.newest {
            found.reverse();
        }
        Some((found, next))
    }
}
