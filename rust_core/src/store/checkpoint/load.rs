//! Reading a checkpoint back into a state.

use super::OnDisk;
use super::blocks::{Blocks, Section};
use super::format::{Ends, StoredMailbox};
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::log::Lsn;
use crate::mailbox::{Policy, Tier};
use crate::store::indexes::SlotIx;
use crate::store::replay::Known;
use crate::store::state::{Place, State};
use crate::time::Now;
use crate::wire::tie::TieRecord;

/// A state as of a checkpoint.
pub struct Loaded {
    pub state: State,
    /// Slot and capture position of each mailbox, for replay.
    pub known: Known,
    pub on_disk: Option<OnDisk>,
    /// The last position anything was captured at: the log reached this far.
    pub last_position: Lsn,
    /// Where the records of segments ended; empty in a checkpoint of an early version.
    pub ends: Ends,
    /// Where the stream of a cluster stood at the start.
    pub tie: Option<TieRecord>,
}

impl Loaded {
    /// The state of a store that has no checkpoint.
    pub fn nothing(now: Now) -> Loaded {
        let (state, known) = (State::new(now), Known::default());
        let ends = Ends::default();
        Loaded { state, known, on_disk: None, last_position: Lsn::NONE, ends, tie: None }
    }
}

/// Loads the checkpoint `number`; `Ok(None)` if it is damaged.
pub fn load(disk: &dyn Disk, number: u32, now: Now) -> Result<Option<Loaded>> {
    let blocks = Blocks::open(disk, number)?;
    let size = blocks.size;
    let mut loaded = Loaded::nothing(now);
    let mut head = None;
    let mut count: u64 = 0;
    let mut mailbox = None;
    // The inner outcome is whether the checkpoint is whole and sound.
    let sound = blocks.for_each(|file, at, section| {
        let known = head.is_some();
        match section {
            Section::Head(first) if !known => {
                loaded.state.epoch = first.epoch;
                loaded.last_position = first.start;
                head = Some(first);
            }
            Section::Segments(ends) if known => {
                count += 1;
                loaded.ends = ends;
            }
            Section::Tie(tie) if known => {
                count += 1;
                loaded.tie = Some(tie);
            }
            Section::Mailbox(stored, policy) if known => {
                count += 1;
                match loaded.add(*stored, policy) {
                    Ok(index) => mailbox = index,
                    Err(Twice) => return Ok(Some(false)),
                }
            }
            Section::Lane(level, part) if known => {
                count += 1;
                let slot = mailbox.and_then(|index| loaded.state.slot_mut(index));
                if slot.is_some_and(|slot| !slot.mailbox.extend_lane(level, part)) {
                    return Ok(Some(false));
                }
            }
            Section::SentIds(ids) if known => {
                count += 1;
                if let Some(index) = mailbox {
                    for sent in ids {
                        loaded.state.note_sent(index, &sent.id, sent.sent_ms, sent.msg_id);
                    }
                }
            }
            Section::Subjects(of) if known => {
                count += 1;
                if let Some(slot) = mailbox.and_then(|index| loaded.state.slot_mut(index)) {
                    let subjects = slot.mailbox.extras_mut().subjects.get_or_insert_default();
                    for (msg_id, subject) in of {
                        subjects.put(msg_id, &subject);
                    }
                }
            }
            Section::Consumer(name, consumer) if known => {
                count += 1;
                let added = mailbox.map(|index| loaded.state.add_consumer(index, &name, *consumer));
                if added == Some(false) {
                    return Ok(Some(false));
                }
            }
            Section::End { sections } if known => return Ok(Some(sections == count)),
            Section::Newer(what) => {
                return Err(Error::NewerFormat { file: file.to_owned(), offset: at, what });
            }
            _ => return Ok(Some(false)),
        }
        Ok(None)
    })?;
    let Some(head) = head.filter(|_| sound == Some(true)) else { return Ok(None) };
    loaded.state.next_number = loaded.state.next_number.max(head.next_number);
    loaded.on_disk = Some(OnDisk { number, start: head.start, size });
    Ok(Some(loaded))
}

/// What an older checkpoint says of itself, should the newest be lost one day. Of its inside nothing is
/// read, but it must begin and end as a checkpoint does.
pub fn peek(disk: &dyn Disk, number: u32) -> Result<Option<OnDisk>> {
    let blocks = Blocks::open(disk, number)?;
    let size = blocks.size;
    let has_end = blocks.has_end()?;
    let head = blocks.for_each(|file, at, section| match section {
        Section::Head(head) => Ok(Some(Some(head))),
        Section::Newer(what) => Err(Error::NewerFormat { file: file.to_owned(), offset: at, what }),
        _ => Ok(Some(None)),
    })?;
    Ok(head.flatten().filter(|_| has_end).map(|head| OnDisk { number, start: head.start, size }))
}

/// A mailbox number is in a checkpoint twice.
struct Twice;

impl Loaded {
    /// Adds a mailbox; returns its slot, or `None` if another has its address by now.
    fn add(
        &mut self,
        stored: StoredMailbox,
        policy: Policy,
    ) -> std::result::Result<Option<SlotIx>, Twice> {
        let (number, at) = (stored.mailbox.number, stored.captured_at);
        self.last_position = self.last_position.max(at);
        if self.known.has(number) {
            return Err(Twice);
        }
        // An address that was taken again while the checkpoint was made is in it twice.
        let other = self.state.find(&stored.mailbox.address);
        match other.map(|other| self.state.number(other)) {
            Some(other) if other > number => return Ok(None),
            Some(other) => self.known.forget(other),
            None => {}
        }
        let index = restore(&mut self.state, stored, policy);
        self.known.add(number, index, at);
        Ok(Some(index))
    }
}

/// Puts a mailbox into the state. Live bytes are counted later, when all is replayed.
fn restore(state: &mut State, stored: StoredMailbox, policy: Policy) -> SlotIx {
    let mut mailbox = stored.mailbox;
    mailbox.set_lanes(stored.lanes);
    let memory = policy.tier == Tier::Memory;
    if memory {
        mailbox.next_id = mailbox.next_id.max(stored.reserved_ids);
    }
    if stored.reserved_ids > 0 || stored.next_delay > 0 {
        let extras = mailbox.extras_mut();
        extras.reserved_ids = stored.reserved_ids;
        extras.next_delay = stored.next_delay;
    }
    let index = state.add_mailbox(mailbox, &stored.desc, policy);
    for (msg_id, key) in stored.keys {
        if let Some(slot) = state.slot_mut(index) {
            slot.mailbox.extras_mut().set_key(&key, msg_id);
        }
    }
    for (msg_id, expires_ms) in stored.expiries {
        state.set_expiry(index, msg_id, expires_ms);
    }
    for delay in stored.delayed {
        let place = Place { at: delay.at, len: delay.len };
        state.set_delay(index, delay.delay_id, delay.due_ms, delay.expires_ms, place);
    }
    if let Some(slot) = state.slot_mut(index) {
        for (name, group) in stored.groups {
            slot.add_group(&name, group);
        }
    }
    index
}
