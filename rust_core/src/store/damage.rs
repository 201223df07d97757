//! Damage that was found, for the log and the operator.

use super::Store;
use super::lost::Lost;
use crate::disk::Disk;
use crate::log::{Lsn, names};

/// What kind of damage was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DamageKind {
    /// Bytes inside a segment that are no record.
    Record,
    /// The end of a segment, cut short in the middle of a write. Nothing acknowledged was in it,
    /// unless the disk lost what it had synced.
    TornTail,
    /// A segment that ends too early: a checkpoint knows that more of it was durable.
    CutShort,
    /// A segment whose header is unreadable, or that is missing.
    Segment,
    /// A checkpoint that is unreadable: an older one or the log itself was used.
    Checkpoint,
    /// A sound record that refers to something lost to other damage.
    Orphan,
    /// A message that the index knows and that cannot be read: it was taken out.
    Message {
        /// The mailbox's address.
        mailbox: String,
        /// The message.
        msg_id: u64,
    },
}

/// One place of damage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The file's name in the data directory.
    pub file: String,
    /// Where in it.
    pub offset: u64,
    /// How many bytes, 0 if unknown.
    pub bytes: u64,
    /// What it is.
    pub kind: DamageKind,
    /// Where the bytes were copied to, if they were.
    pub set_aside: Option<String>,
    /// What went with a segment, or with its end.
    pub lost: Lost,
}

impl Damage {
    /// Damage at a position of the log.
    pub(super) fn at(at: Lsn, bytes: u64, kind: DamageKind) -> Damage {
        let file = names::segment(at.segment());
        let (offset, lost) = (u64::from(at.offset()), Lost::default());
        Damage { file, offset, bytes, kind, set_aside: None, lost }
    }
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Damage { file, offset, bytes, .. } = self;
        match &self.kind {
            DamageKind::Record => write!(f, "{file}: {bytes} damaged bytes at {offset}")?,
            DamageKind::TornTail => write!(f, "{file}: {bytes} bytes torn off at {offset}")?,
            DamageKind::CutShort => write!(f, "{file}: {bytes} bytes are missing at {offset}")?,
            DamageKind::Segment => write!(f, "{file}: the segment is missing or unreadable")?,
            DamageKind::Checkpoint => write!(f, "{file}: the checkpoint is unreadable")?,
            DamageKind::Orphan => {
                write!(f, "{file}: the record at {offset} refers to something lost")?;
            }
            DamageKind::Message { mailbox, msg_id } => {
                write!(f, "{file}: message {msg_id} of {mailbox} at {offset} is unreadable")?;
            }
        }
        if self.lost.messages > 0 {
            write!(f, "; {}", self.lost)?;
        }
        match &self.set_aside {
            Some(name) => write!(f, "; the bytes are kept in {name}"),
            None => Ok(()),
        }
    }
}

/// Copies unreadable bytes durably into a file of their own and returns its name. Zeros are not kept.
pub(super) fn set_aside(disk: &dyn Disk, file: &str, offset: u64, bytes: &[u8]) -> Option<String> {
    let is_empty = bytes.iter().all(|&byte| byte == 0);
    if is_empty { None } else { keep(disk, names::set_aside(file, offset), bytes) }
}

/// Says what was lost with a segment in a file of its own: there are no bytes that could tell of it.
pub(super) fn write_down(disk: &dyn Disk, damage: &Damage) {
    let _ = keep(disk, names::lost(&damage.file), format!("{damage}\n").as_bytes());
}

fn keep(disk: &dyn Disk, name: String, bytes: &[u8]) -> Option<String> {
    let copy = match disk.create(&name) {
        // Begun by an earlier open, which may not have come to its end.
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => disk.open(&name),
        outcome => outcome,
    };
    // The caller may cut the original off next.
    let kept = copy
        .and_then(|copy| copy.write_at(bytes, 0).and_then(|()| copy.sync()))
        .and_then(|()| disk.sync_dir());
    kept.is_ok().then_some(name)
}

impl Store {
    /// Notes damage and sets its bytes aside, also if they are zeros: the file tells of a message that was lost,
    /// for as long as nobody takes it away.
    pub(super) fn report(&mut self, mut damage: Damage, bytes: &[u8]) {
        let name = names::set_aside(&damage.file, damage.offset);
        damage.set_aside = keep(&*self.disk, name, bytes);
        self.damage.push(damage);
    }
}
