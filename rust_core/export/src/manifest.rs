//! The manifest: how far the export is. Replacing it is what makes files count.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::tree::{Tree, UNFINISHED};

/// Its name in the export folder.
pub const NAME: &str = "manifest.json";

/// The version of the two schemas and of the manifest. Columns may be added without a new one.
pub const VERSION: u32 = 1;

/// A position in the log: everything before it is exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position {
    /// Number of the segment; 0 before the first.
    pub segment: u32,
    /// Offset in it.
    pub offset: u32,
}

/// What has been written of one dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Written {
    /// Files.
    pub files: u64,
    /// Rows in them.
    pub rows: u64,
    /// Bytes of the files.
    pub bytes: u64,
}

impl Written {
    /// Counts a file.
    pub fn add(&mut self, rows: u64, bytes: u64) {
        self.files += 1;
        self.rows += rows;
        self.bytes += bytes;
    }
}

/// How many entries of [`Manifest::since`] are kept: usually each is one hour.
const MOST_SINCE: usize = 48;

/// The oldest hour that any piece from a position on has rows of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Since {
    /// Where the first of the pieces begins.
    #[serde(flatten)]
    pub position: Position,
    /// The folder of the hour.
    pub hour: String,
}

/// What the export folder says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of schemas and manifest.
    pub version: u32,
    /// Where the next piece of the log begins. A file counts if its own piece begins before this.
    #[serde(flatten)]
    pub position: Position,
    /// The salt of that segment as hexadecimal text: another store has another. Empty if it was not there yet.
    pub salt: String,
    /// Rows older than this were left out.
    pub since_ms: u64,
    /// The dataset `messages`.
    pub messages: Written,
    /// The dataset `events`.
    pub events: Written,
    /// Bytes of log that were read.
    pub log_bytes: u64,
    /// Times that a part of the log was gone before it could be read.
    pub gaps: u64,
    /// Bytes that were no records.
    pub damaged_bytes: u64,
    /// Records without a time, written by earlier versions of mq9: they give no events.
    pub untimed: u64,
    /// From which hour on the rows are that were written since a position, in the order of both: who follows the export
    /// from there need not look at earlier hours. Older positions than the first are not known any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub since: Vec<Since>,
    /// The highest position of a file that was removed because it was old. Who follows the export and is not past it
    /// has missed rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forgotten: Option<Position>,
}

/// The manifest as it is written: with a checksum, or a bit turned in a number would lose or double rows.
#[derive(Serialize, Deserialize)]
struct Sealed {
    #[serde(flatten)]
    manifest: Manifest,
    /// Of the manifest without it, as JSON without spaces; hexadecimal text.
    crc32c: String,
}

impl Manifest {
    /// That of a folder without any export.
    pub fn new(since_ms: u64) -> Manifest {
        Manifest {
            version: VERSION,
            position: Position { segment: 0, offset: 0 },
            salt: String::new(),
            since_ms,
            messages: Written::default(),
            events: Written::default(),
            log_bytes: 0,
            gaps: 0,
            damaged_bytes: 0,
            untimed: 0,
            since: Vec::new(),
            forgotten: None,
        }
    }

    /// Notes the oldest hour that a new piece has rows of.
    pub fn note_hour(&mut self, position: Position, hour: &str) {
        // Of those that are later, the first now begins here as well, and the others say no more than it does.
        match self.since.iter().position(|each| each.hour.as_str() >= hour) {
            Some(later) => {
                self.since.truncate(later + 1);
                hour.clone_into(&mut self.since[later].hour);
            }
            None => self.since.push(Since { position, hour: hour.to_owned() }),
        }
        let surplus = self.since.len().saturating_sub(MOST_SINCE);
        self.since.drain(..surplus);
        debug_assert!(self.since.is_sorted_by(|a, b| a.position < b.position && a.hour < b.hour));
    }

    /// Reads the manifest; `None` if there is none.
    pub fn load(tree: &dyn Tree) -> Result<Option<Manifest>> {
        let bytes = tree.read(NAME).map_err(|e| Error::io("read", NAME, e))?;
        let Some(bytes) = bytes else { return Ok(None) };
        let Sealed { manifest, crc32c } =
            serde_json::from_slice(&bytes).map_err(|e| Error::Manifest(e.to_string()))?;
        if manifest.version != VERSION {
            let what = format!("version {} was written by another mq9", manifest.version);
            return Err(Error::Manifest(what));
        }
        if manifest.crc32c()? != crc32c {
            return Err(Error::Manifest("its checksum does not match".to_owned()));
        }
        Ok(Some(manifest))
    }

    fn crc32c(&self) -> Result<String> {
        let bytes = serde_json::to_vec(self).map_err(|e| Error::Manifest(e.to_string()))?;
        Ok(format!("{:08x}", crc32c::crc32c(&bytes)))
    }

    /// Replaces the manifest, durably: either the old one or the new one is there.
    pub fn save(&self, tree: &dyn Tree) -> Result<()> {
        let unfinished = format!("{UNFINISHED}/{NAME}");
        let failed = |action| move |e| Error::io(action, NAME, e);
        let sealed = Sealed { crc32c: self.crc32c()?, manifest: self.clone() };
        let mut bytes =
            serde_json::to_vec_pretty(&sealed).map_err(|e| Error::Manifest(e.to_string()))?;
        bytes.push(b'\n');
        let file = tree.create(&unfinished).map_err(failed("write"))?;
        file.write_at(&bytes, 0).map_err(failed("write"))?;
        file.sync().map_err(failed("sync"))?;
        tree.rename(&unfinished, NAME).map_err(failed("replace"))?;
        tree.sync_folder("").map_err(failed("sync"))
    }
}
