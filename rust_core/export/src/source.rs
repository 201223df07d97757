//! The segments of a data directory, as somebody sees them who neither writes them nor holds their lock.
//!
//! A segment may be written to, or removed, while it is read. Knows nothing of what records mean.

use std::io;
use std::sync::Arc;

use mq9_core::disk::{Disk, DiskFile};
use mq9_core::log::{FIRST_RECORD, Header, Lsn, names};
use mq9_core::wire::record::{self, HEADER, Seed};

use crate::error::{Error, Result};

/// A data directory.
pub struct Source {
    disk: Arc<dyn Disk>,
}

/// A segment that is there.
pub struct Segment {
    /// Its number.
    pub number: u32,
    /// The one before it when it was begun; 0 for the first.
    pub previous: u32,
    /// Salt of its records.
    pub salt: u64,
    file: Arc<dyn DiskFile>,
}

impl Source {
    /// Reads the directory of `disk`.
    pub fn new(disk: Arc<dyn Disk>) -> Source {
        Source { disk }
    }

    /// The numbers of all segments, ascending.
    pub fn numbers(&self) -> Result<Vec<u32>> {
        let names = self.disk.list().map_err(|e| Error::io("list", "the data directory", e))?;
        let mut numbers: Vec<u32> = names.iter().filter_map(|n| names::segment_number(n)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Opens a segment; `None` if it is gone, or has no header that can be read.
    pub fn open(&self, number: u32) -> Result<Option<Segment>> {
        let name = names::segment(number);
        let file = match self.disk.open_to_read(&name) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(|e| Error::io("open", &name, e))?,
        };
        let mut bytes = [0; FIRST_RECORD as usize];
        let got = file.read_at(&mut bytes, 0).map_err(|e| Error::io("read", &name, e))?;
        let header = Header::decode(&name, &bytes[..got])?.filter(|h| h.number == number);
        Ok(header.map(|h| Segment { number, previous: h.previous, salt: h.salt, file }))
    }

    /// Whether the log has gone on behind a segment: it is not written to any more. A segment that is made ahead
    /// holds no record.
    pub fn goes_on_behind(&self, number: u32) -> Result<bool> {
        for later in self.numbers()?.into_iter().filter(|later| *later > number) {
            if let Some(segment) = self.open(later)?
                && segment.has_record()?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Segment {
    /// Its salt, by which segments of different stores differ, as text.
    pub fn salt_text(&self) -> String {
        format!("{:016x}", self.salt)
    }

    /// Bytes of the file, reserved space included.
    pub fn size(&self) -> Result<u32> {
        let size = self.file.size().map_err(|e| self.failed("read", e))?;
        Ok(u32::try_from(size).unwrap_or(u32::MAX))
    }

    /// Reads up to `len` bytes at `offset`; fewer at the end of the file.
    pub fn read(&self, offset: u32, len: u32) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len as usize];
        let got = self.file.read_at(&mut bytes, u64::from(offset));
        bytes.truncate(got.map_err(|e| self.failed("read", e))?);
        Ok(bytes)
    }

    /// Makes what has been read durable: a power cut must not take from the log what is exported.
    pub fn sync(&self) -> Result<()> {
        self.file.sync().map_err(|e| self.failed("sync", e))
    }

    fn has_record(&self) -> Result<bool> {
        let frame = self.read(FIRST_RECORD, HEADER as u32)?;
        let len = frame.get(4..8).and_then(|len| len.try_into().ok()).map_or(0, u32::from_le_bytes);
        if len < HEADER as u32 || len > self.size()? {
            return Ok(false);
        }
        let seed = Seed::new(self.salt, Lsn::new(self.number, FIRST_RECORD).number());
        Ok(record::decode(&self.read(FIRST_RECORD, len)?, seed).is_some())
    }

    fn failed(&self, action: &'static str, e: io::Error) -> Error {
        Error::io(action, names::segment(self.number), e)
    }
}
