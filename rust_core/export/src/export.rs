//! An export: from where the manifest says to where the log is durable, piece by piece.
//!
//! The files of a piece have names made of the position at which it begins. Whatever lies at or behind the manifest's
//! position was not finished, and goes before anything new is written.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use mq9_core::disk::{Disk, DiskFile};
use mq9_core::log::{FIRST_RECORD, Lsn};

use crate::error::{Error, Result};
use crate::hours::Hour;
use crate::manifest::{Manifest, Position};
use crate::messages::{Row, Setting};
use crate::piece::{Part, Piece, collect};
use crate::schema::{self, Schema};
use crate::source::{Segment, Source};
use crate::tree::{Tree, UNFINISHED};
use crate::{events, messages};

/// A smaller piece is not worth its files.
const LEAST_PIECE: u32 = 4096;

pub(crate) const MESSAGES: &str = "messages";
pub(crate) const EVENTS: &str = "events";

/// What is exported, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Whether payloads are among it.
    pub payloads: bool,
    /// Rows older than this are left out. `None` is what the export was begun with, or no limit.
    pub since_ms: Option<u64>,
    /// About how much log is held in memory at a time.
    pub piece_bytes: u32,
    /// Whether files of messages and of events are written at the same time, by two threads.
    pub at_once: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { payloads: true, since_ms: None, piece_bytes: 32 << 20, at_once: false }
    }
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of log read by this run.
    pub done_bytes: u64,
    /// Bytes of log that lay ahead when it began, reserved space included.
    pub ahead_bytes: u64,
}

/// What a run did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Rows of `messages`.
    pub messages: u64,
    /// Rows of `events`.
    pub events: u64,
    /// Files of both.
    pub files: u64,
    /// Bytes of these files.
    pub file_bytes: u64,
    /// Bytes of log read.
    pub log_bytes: u64,
    /// Times that a part of the log was gone before it could be read.
    pub gaps: u64,
    /// Bytes that were no records.
    pub damaged_bytes: u64,
    /// Records of earlier versions that tell no time, and are not among the events.
    pub untimed: u64,
}

impl Summary {
    fn add(&mut self, before: &Manifest, after: &Manifest) {
        self.messages += after.messages.rows - before.messages.rows;
        self.events += after.events.rows - before.events.rows;
        for (before, after) in [(before.messages, after.messages), (before.events, after.events)] {
            self.files += after.files - before.files;
            self.file_bytes += after.bytes - before.bytes;
        }
        self.log_bytes += after.log_bytes - before.log_bytes;
        self.damaged_bytes += after.damaged_bytes - before.damaged_bytes;
        self.untimed += after.untimed - before.untimed;
    }
}

/// A run in progress.
struct Run<'p> {
    until: Option<Lsn>,
    ahead_bytes: u64,
    summary: Summary,
    progress: &'p mut dyn FnMut(Progress) -> bool,
}

/// A file of a piece: where it lies, where it belongs, and what is in it.
struct Made {
    unfinished: String,
    path: String,
    rows: u64,
    bytes: u64,
}

/// The export of a store to a folder, of which there is one at a time.
pub struct Export {
    source: Source,
    pub(crate) tree: Arc<dyn Tree>,
    options: Options,
    pub(crate) manifest: Manifest,
    schemas: [Schema; 2],
    /// Folders known to be there, durably.
    pub(crate) folders: HashSet<String>,
    _lock: Box<dyn Send + Sync>,
}

impl Export {
    /// Goes on where the last export to the folder ended, or begins one.
    pub fn open(data: Arc<dyn Disk>, tree: Arc<dyn Tree>, options: Options) -> Result<Export> {
        let lock = tree.lock().map_err(|e| match e.kind() {
            std::io::ErrorKind::WouldBlock => Error::Locked,
            _ => Error::io("lock", "the export folder", e),
        })?;
        let found = Manifest::load(&*tree)?;
        if let (Some(before), Some(now)) = (found.as_ref().map(|m| m.since_ms), options.since_ms)
            && before != now
        {
            let (name, before, now) = ("since_ms", before.to_string(), now.to_string());
            return Err(Error::Differs { name, before, now });
        }
        let export = Export {
            source: Source::new(data),
            tree,
            options,
            manifest: found.unwrap_or_else(|| Manifest::new(options.since_ms.unwrap_or(0))),
            schemas: [schema::messages()?, schema::events()?],
            folders: HashSet::new(),
            _lock: lock,
        };
        let made = export.tree.make_folder(UNFINISHED);
        made.map_err(|e| Error::io("make", UNFINISHED, e))?;
        export.sweep()?;
        Ok(export)
    }

    /// What the folder says of itself.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Removes what an export left that was killed.
    fn sweep(&self) -> Result<()> {
        let tree = &self.tree;
        let list = |folder| tree.files(folder).map_err(|e| Error::io("list", folder, e));
        let unfinished = list(UNFINISHED)?;
        let parts = list(MESSAGES)?.into_iter().chain(list(EVENTS)?);
        let uncounted =
            parts.filter(|path| position_of(path).is_some_and(|at| at >= self.manifest.position));
        for path in unfinished.into_iter().chain(uncounted) {
            tree.remove(&path).map_err(|e| Error::io("remove", path, e))?;
        }
        Ok(())
    }

    /// Exports what is there. `until` is how far the log is durable, if the caller knows; otherwise what is read
    /// is made durable first. `progress` is called after each piece and stops the run by returning false.
    pub fn run(
        &mut self,
        until: Option<Lsn>,
        progress: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<Summary> {
        let mut run = Run { until, ahead_bytes: 0, summary: Summary::default(), progress };
        for number in self.source.numbers()? {
            if number >= self.manifest.position.segment
                && let Some(segment) = self.source.open(number)?
            {
                run.ahead_bytes += u64::from(segment.size()?);
            }
        }
        while let Some(segment) = self.next_segment(&mut run)? {
            let is_sealed = match until {
                Some(until) => segment.number < until.segment(),
                None => self.source.goes_on_behind(segment.number)?,
            };
            // Asked for after that: what was written before the log went on is in the file.
            let size = segment.size()?;
            let durable = until.filter(|until| until.segment() == segment.number);
            let end = durable.map_or(size, |until| size.min(until.offset()));
            if !self.export_segment(&segment, end, is_sealed, &mut run)? {
                break;
            }
        }
        Ok(run.summary)
    }

    /// The segment to go on in. Notes if a part of the log before it is gone.
    fn next_segment(&mut self, run: &mut Run<'_>) -> Result<Option<Segment>> {
        let position = self.manifest.position;
        for number in self.source.numbers()? {
            let is_late = run.until.is_some_and(|until| number > until.segment());
            if number < position.segment || is_late {
                continue;
            }
            let Some(segment) = self.source.open(number)? else { continue };
            let salt = segment.salt_text();
            if number == position.segment {
                if !self.manifest.salt.is_empty() && self.manifest.salt != salt {
                    return Err(Error::OtherStore { segment: number });
                }
            } else {
                // Of a segment that was made ahead and never used nothing is missing.
                let begun = position.offset > FIRST_RECORD;
                if begun || segment.previous >= position.segment.max(1) {
                    run.summary.gaps += 1;
                    self.manifest.gaps += 1;
                }
                self.manifest.position = Position { segment: number, offset: FIRST_RECORD };
            }
            self.manifest.salt = salt;
            return Ok(Some(segment));
        }
        Ok(None)
    }

    /// Exports a segment from the manifest's position on. False if it may be written to: nothing can follow.
    fn export_segment(
        &mut self,
        segment: &Segment,
        end: u32,
        is_sealed: bool,
        run: &mut Run<'_>,
    ) -> Result<bool> {
        let mut window = self.options.piece_bytes.max(LEAST_PIECE);
        loop {
            let from = self.manifest.position.offset;
            let len = window.min(end.saturating_sub(from));
            let bytes = Bytes::from(segment.read(from, len)?);
            let is_end = from.saturating_add(len) >= end;
            let (number, salt) = (segment.number, segment.salt);
            let part = Part { segment: number, salt, from, bytes: &bytes, is_end, is_sealed };
            let mut piece = collect(part, self.manifest.since_ms)?;
            if !piece.is_last && piece.to == from {
                if is_end {
                    return Ok(false);
                }
                // A record that is larger than the window.
                window = window.saturating_mul(2);
                continue;
            }
            if run.until.is_none() {
                segment.sync()?;
            }
            self.write(segment, &bytes, &mut piece, &mut run.summary)?;
            let done_bytes = run.summary.log_bytes;
            let ahead_bytes = run.ahead_bytes.max(done_bytes);
            if !(run.progress)(Progress { done_bytes, ahead_bytes }) {
                return Err(Error::Stopped);
            }
            if piece.is_last {
                return Ok(true);
            }
            window = self.options.piece_bytes.max(LEAST_PIECE);
        }
    }

    /// Writes the files of a piece and has them count.
    fn write(
        &mut self,
        segment: &Segment,
        bytes: &Bytes,
        piece: &mut Piece<'_>,
        summary: &mut Summary,
    ) -> Result<()> {
        let setting = Setting { bytes, segment: segment.number, payloads: self.options.payloads };
        let Piece { messages, events, .. } = piece;
        let (of_messages, of_events) = if self.options.at_once {
            std::thread::scope(|scope| {
                let beside = scope.spawn(|| self.write_messages(messages, setting));
                let of_events = self.write_events(events, setting);
                (beside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), of_events)
            })
        } else {
            (self.write_messages(messages, setting), self.write_events(events, setting))
        };
        let (of_messages, of_events) = (of_messages?, of_events?);
        let mut next = self.manifest.clone();
        for file in &of_messages {
            next.messages.add(file.rows, file.bytes);
        }
        for file in &of_events {
            next.events.add(file.rows, file.bytes);
        }
        let made: Vec<Made> = of_messages.into_iter().chain(of_events).collect();
        if let Some(oldest) = made.iter().filter_map(|file| hour_of(&file.path)).min() {
            next.note_hour(self.manifest.position, oldest);
        }
        self.finish_files(&made)?;
        let read = u64::from(piece.to - self.manifest.position.offset);
        next.log_bytes += read;
        next.damaged_bytes += piece.damaged_bytes;
        next.untimed += piece.untimed;
        next.position = Position { segment: segment.number, offset: piece.to };
        if piece.is_last {
            (next.position, next.salt) = self.behind(segment.number)?;
        }
        next.save(&*self.tree)?;
        summary.add(&self.manifest, &next);
        self.manifest = next;
        Ok(())
    }

    /// The beginning of the segment behind one that is exported, and that segment's salt.
    fn behind(&self, number: u32) -> Result<(Position, String)> {
        let next = self.source.numbers()?.into_iter().find(|next| *next > number);
        let next = next.unwrap_or(number + 1);
        let salt = self.source.open(next)?.map_or_else(String::new, |next| next.salt_text());
        Ok((Position { segment: next, offset: FIRST_RECORD }, salt))
    }

    /// Writes the files of messages.
    fn write_messages(&self, rows: &mut [Row<'_>], setting: Setting<'_>) -> Result<Vec<Made>> {
        messages::sort(rows);
        let hours = rows.chunk_by(|a, b| a.hour() == b.hour());
        let files = hours.map(|rows| {
            self.write_file(MESSAGES, rows[0].hour(), |file| {
                let size = messages::write(rows, setting, file, &self.schemas[0])?;
                Ok((rows.len() as u64, size))
            })
        });
        files.collect()
    }

    /// Writes the files of events.
    fn write_events(
        &self,
        runs: &mut [events::Run<'_>],
        setting: Setting<'_>,
    ) -> Result<Vec<Made>> {
        events::sort(runs);
        let hours = runs.chunk_by(|a, b| a.hour() == b.hour());
        let files = hours.map(|runs| {
            self.write_file(EVENTS, runs[0].hour(), |file| {
                events::write(runs, setting, file, &self.schemas[1])
            })
        });
        files.collect()
    }

    /// Writes a file of the piece at the manifest's position, durably; `write` tells its rows and bytes.
    fn write_file(
        &self,
        dataset: &str,
        hour: Hour,
        write: impl FnOnce(Arc<dyn DiskFile>) -> parquet::errors::Result<(u64, u64)>,
    ) -> Result<Made> {
        let Position { segment, offset } = self.manifest.position;
        let folder = format!("{dataset}/{}", hour.folder());
        let name = format!("part-{segment:010}-{offset:010}.parquet");
        let unfinished = format!("{UNFINISHED}/{}-{name}", folder.replace('/', "-"));
        let path = format!("{folder}/{name}");
        let file =
            self.tree.create(&unfinished).map_err(|e| Error::io("create", &unfinished, e))?;
        let (rows, bytes) = write(Arc::clone(&file))
            .map_err(|cause| Error::Parquet { path: path.clone(), cause })?;
        file.sync().map_err(|e| Error::io("sync", &path, e))?;
        Ok(Made { unfinished, path, rows, bytes })
    }

    /// Gives finished files their names, durably.
    fn finish_files(&mut self, made: &[Made]) -> Result<()> {
        let folder_of =
            |path: &str| path.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
        let folders: HashSet<String> = made.iter().map(|file| folder_of(&file.path)).collect();
        for folder in &folders {
            if !self.folders.contains(folder) {
                self.tree.make_folder(folder).map_err(|e| Error::io("make", folder, e))?;
                self.folders.insert(folder.clone());
            }
        }
        for Made { unfinished, path, .. } in made {
            self.tree.rename(unfinished, path).map_err(|e| Error::io("rename", unfinished, e))?;
        }
        for folder in folders {
            self.tree.sync_folder(&folder).map_err(|e| Error::io("sync", &folder, e))?;
        }
        Ok(())
    }
}

/// The folder of the hour that a file is in, below that of its dataset.
fn hour_of(path: &str) -> Option<&str> {
    Some(path.split_once('/')?.1.rsplit_once('/')?.0)
}

/// Where the piece begins that a file is of; `None` for other files.
pub(crate) fn position_of(path: &str) -> Option<Position> {
    let name = path.rsplit('/').next()?;
    let (segment, offset) =
        name.strip_prefix("part-")?.strip_suffix(".parquet")?.split_once('-')?;
    Some(Position { segment: segment.parse().ok()?, offset: offset.parse().ok()? })
}
