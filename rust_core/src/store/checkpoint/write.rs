//! Making a checkpoint in small steps: capture under the store's lock, write without it.

use std::sync::Arc;
use std::time::Duration;

use super::OnDisk;
use super::format::{
    Captured, END, Ends, HEAD, Head, MAGIC, SEGMENTS, TIE, TIED_VERSION, VERSION, encode_consumer,
    encode_part, encode_sent_ids, encode_subjects,
};
use crate::disk::{Disk, DiskFile};
use crate::error::{Error, Result};
use crate::log::{Lsn, Syncer, names};
use crate::store::Store;
use crate::wire::bytes::Put;
use crate::wire::section;

/// Encoded bytes are written when there are this many.
const WRITE_AT: usize = 1 << 18;

/// What is copied of a captured mailbox does not count up to this many things.
const HEAVY: usize = 64;

/// A checkpoint being made. Dropped unfinished, it takes its file with it.
pub struct Checkpointer {
    disk: Arc<dyn Disk>,
    syncer: Arc<Syncer>,
    file: Arc<dyn DiskFile>,
    number: u32,
    start: Lsn,
    log_bytes: u64,
    /// The last position anything was captured at.
    captured_to: Lsn,
    next_slot: u32,
    captured: Vec<Captured>,
    /// Sections behind the head so far.
    sections: u64,
    buffer: Vec<u8>,
    written: u64,
    /// The file has its final name.
    named: bool,
}

/// A checkpoint that has a number and nothing else.
pub struct NewCheckpoint {
    disk: Arc<dyn Disk>,
    number: u32,
}

/// A checkpoint with an empty file.
pub struct Created {
    disk: Arc<dyn Disk>,
    number: u32,
    file: Arc<dyn DiskFile>,
}

impl NewCheckpoint {
    /// Creates the file; needs no lock.
    pub fn create(self) -> Result<Created> {
        let NewCheckpoint { disk, number } = self;
        let name = unfinished(number);
        let file = disk.create(&name).map_err(|e| Error::io("create", name, e))?;
        Ok(Created { disk, number, file })
    }
}

impl Store {
    /// Begins a checkpoint of the state from here on.
    pub fn begin_checkpoint(&mut self) -> Result<Checkpointer> {
        let new = self.new_checkpoint()?.create()?;
        self.start_checkpoint(new)
    }

    /// Gives a checkpoint its number.
    pub(in crate::store) fn new_checkpoint(&mut self) -> Result<NewCheckpoint> {
        let Some(number) = self.checkpoints.last_number.checked_add(1) else {
            return Err(Error::WritesStopped("checkpoint numbers have run out".to_owned()));
        };
        self.checkpoints.last_number = number;
        Ok(NewCheckpoint { disk: Arc::clone(&self.disk), number })
    }

    /// Begins a checkpoint whose file is there.
    pub(in crate::store) fn start_checkpoint(&mut self, new: Created) -> Result<Checkpointer> {
        self.log.flush()?;
        let Created { disk, number, file } = new;
        let start = self.log.end();
        let (epoch, next_number) = (self.state.epoch, self.state.next_number);
        let mut buffer = MAGIC.to_vec();
        let tie = self.next_tie();
        let version = if tie.is_some() { TIED_VERSION } else { VERSION };
        let head = Head { version, start, epoch, next_number };
        section::append(&mut buffer, HEAD, |out| head.encode(out));
        let ends = Ends(self.log.segments().iter().map(|(&n, segment)| (n, segment.end)).collect());
        section::append(&mut buffer, SEGMENTS, |out| ends.encode(out));
        if let Some(tie) = tie {
            section::append(&mut buffer, TIE, |out| tie.encode(out));
        }
        Ok(Checkpointer {
            disk,
            syncer: self.syncer(),
            file,
            number,
            start,
            log_bytes: self.log.appended(),
            captured_to: start,
            next_slot: 0,
            captured: Vec::new(),
            sections: 1 + u64::from(tie.is_some()),
            buffer,
            written: 0,
            named: false,
        })
    }

    /// Captures up to `budget` more mailboxes; false when all have been.
    pub fn capture(&mut self, checkpointer: &mut Checkpointer, budget: usize) -> Result<bool> {
        let at = self.log.end();
        checkpointer.captured_to = at;
        let from = checkpointer.next_slot;
        let mut weight = 0;
        let mut swept = Vec::new();
        for index in self.state.indexes(from).take(budget) {
            checkpointer.next_slot += 1;
            if let Some(slot) = self.state.slot(index) {
                checkpointer.captured.push(Captured::new(slot, at));
                weight += slot.weight();
                if slot.consumers().is_some_and(|consumers| consumers.sweep.is_some()) {
                    swept.push(index);
                }
            }
            if weight > budget.saturating_mul(HEAVY) {
                break;
            }
        }
        swept.into_iter().for_each(|index| self.note_sweep(index));
        // What was captured must be in the log before the checkpoint counts.
        self.log.flush()?;
        Ok(from < checkpointer.next_slot)
    }
}

impl Checkpointer {
    /// Writes what has been captured; `pause` is called now and then, as that may be much.
    pub fn write(&mut self, mut pause: impl FnMut() -> Result<()>) -> Result<()> {
        for mailbox in std::mem::take(&mut self.captured) {
            mailbox.encode(&mut self.buffer);
            self.section_done()?;
            for (level, part) in mailbox.further_parts() {
                encode_part(level, part, &mut self.buffer);
                self.section_done()?;
                pause()?;
            }
            for ids in mailbox.sent_ids() {
                encode_sent_ids(&ids, &mut self.buffer);
                self.section_done()?;
                pause()?;
            }
            for subjects in mailbox.subjects() {
                encode_subjects(&subjects, &mut self.buffer);
                self.section_done()?;
                pause()?;
            }
            for (name, consumer) in mailbox.consumers() {
                encode_consumer(name, consumer, &mut self.buffer);
                self.section_done()?;
                pause()?;
            }
        }
        Ok(())
    }

    fn section_done(&mut self) -> Result<()> {
        self.sections += 1;
        if self.buffer.len() >= WRITE_AT { self.write_buffer() } else { Ok(()) }
    }

    fn write_buffer(&mut self) -> Result<()> {
        let written = self.file.write_at(&self.buffer, self.written);
        written.map_err(|e| Error::io("write", unfinished(self.number), e))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Waits until the cluster's stream has what was captured, but not for ever; whether it does.
    pub fn wait_committed(&self, patience: Duration) -> bool {
        self.syncer.wait_committed(self.captured_to, patience)
    }

    /// Makes the checkpoint durable. The log goes first: a checkpoint must not know more than it, nor than the stream
    /// of a cluster, since what is not in there may be cut off.
    pub fn finish(&mut self) -> Result<()> {
        if !self.syncer.is_committed(self.captured_to) {
            return Err(Error::StreamBehind);
        }
        self.write(|| Ok(()))?;
        let sections = self.sections;
        section::append(&mut self.buffer, END, |out| out.put_u64(sections));
        self.write_buffer()?;
        self.syncer.round()?;
        let (temporary, name) = (unfinished(self.number), names::checkpoint(self.number));
        self.file.sync().map_err(|e| Error::io("sync", temporary.clone(), e))?;
        let renamed = self.disk.rename(&temporary, &name);
        self.named = renamed.is_ok();
        let durable = renamed.and_then(|()| self.disk.sync_dir());
        durable.map_err(|e| Error::io("rename", temporary, e))
    }

    pub(super) fn on_disk(&self) -> OnDisk {
        OnDisk { number: self.number, start: self.start, size: self.written }
    }

    pub(super) fn log_bytes(&self) -> u64 {
        self.log_bytes
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        if !self.named {
            // On a full disk every try would leave more behind. What stays goes with the next open.
            let _ = self.disk.remove(&unfinished(self.number));
        }
    }
}

fn unfinished(number: u32) -> String {
    names::checkpoint(number) + names::UNFINISHED
}
