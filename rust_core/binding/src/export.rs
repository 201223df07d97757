//! The class `Export`: a store's log as Parquet files.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use mq9_core::disk::OsDisk;
use mq9_core::log::Lsn;
use mq9_export::{OsTree, Progress, Summary};
use pyo3::prelude::*;

use crate::errors::{Failure, Result};
use crate::panics::left_in_the_middle;
use crate::store::Store;

/// How much less important than serving clients an export in the background is.
const NICE: i32 = 10;

/// The export of a data directory to a folder.
#[pyclass(frozen, module = "mq9._core")]
pub struct Export {
    export: Mutex<Option<mq9_export::Export>>,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    stopped: AtomicBool,
    done_bytes: AtomicU64,
    ahead_bytes: AtomicU64,
}

impl State {
    /// Notes how far a run is; false if it is to stop.
    fn advance(&self, progress: Progress) -> bool {
        self.done_bytes.store(progress.done_bytes, Ordering::Relaxed);
        self.ahead_bytes.store(progress.ahead_bytes, Ordering::Relaxed);
        !self.stopped.load(Ordering::Relaxed)
    }
}

/// What a run of an export did.
#[pyclass(frozen, get_all, module = "mq9._core")]
pub struct ExportSummary {
    /// Rows of `messages`.
    messages: u64,
    /// Rows of `events`.
    events: u64,
    /// Files of both.
    files: u64,
    /// Bytes of these files.
    file_bytes: u64,
    /// Bytes of log read.
    log_bytes: u64,
    /// Times that a part of the log was gone before it could be read.
    gaps: u64,
    /// Bytes that were no records.
    damaged_bytes: u64,
    /// Records of earlier versions that tell no time.
    untimed: u64,
}

impl From<Summary> for ExportSummary {
    fn from(summary: Summary) -> ExportSummary {
        let Summary {
            messages,
            events,
            files,
            file_bytes,
            log_bytes,
            gaps,
            damaged_bytes,
            untimed,
        } = summary;
        ExportSummary {
            messages,
            events,
            files,
            file_bytes,
            log_bytes,
            gaps,
            damaged_bytes,
            untimed,
        }
    }
}

#[pymethods]
impl Export {
    #[new]
    #[pyo3(signature = (data, out, *, payloads=true, since_ms=None, piece_bytes=33_554_432, at_once=false))]
    fn new(
        py: Python<'_>,
        data: PathBuf,
        out: PathBuf,
        payloads: bool,
        since_ms: Option<u64>,
        piece_bytes: u32,
        at_once: bool,
    ) -> Result<Export> {
        let options = mq9_export::Options { payloads, since_ms, piece_bytes, at_once };
        py.detach(|| {
            let failed = |path: &PathBuf, e| Failure::io("open", path.display().to_string(), e);
            if let Err(e) = std::fs::read_dir(&data) {
                return Err(failed(&data, e));
            }
            let disk = OsDisk::new(&data).map_err(|e| failed(&data, e))?;
            let tree = OsTree::new(&out).map_err(|e| failed(&out, e))?;
            let export = mq9_export::Export::open(Arc::new(disk), Arc::new(tree), options)?;
            Ok(Export { export: Mutex::new(Some(export)), state: Arc::default() })
        })
    }

    /// Exports what is there and returns what was done. With the open store of the directory it stops where the
    /// log is durable, and runs as background work.
    #[pyo3(signature = (store=None))]
    fn run(&self, py: Python<'_>, store: Option<&Store>) -> Result<ExportSummary> {
        let until = match store {
            Some(store) => Some(store.access().durable_end(py)?),
            None => None,
        };
        py.detach(|| {
            let mut export = self.export.lock().unwrap_or_else(left_in_the_middle);
            let export = export.as_mut().ok_or(Failure::ExportClosed)?;
            let summary = if store.is_some() {
                self.run_quietly(export, until)?
            } else {
                export.run(until, &mut |progress| self.state.advance(progress))?
            };
            Ok(summary.into())
        })
    }

    /// Has a run stop after the piece it is at.
    fn stop(&self) {
        self.state.stopped.store(true, Ordering::Relaxed);
    }

    /// How far the current run is: bytes of log read, and bytes that lay ahead of it.
    fn progress(&self) -> (u64, u64) {
        let state = &self.state;
        (state.done_bytes.load(Ordering::Relaxed), state.ahead_bytes.load(Ordering::Relaxed))
    }

    /// Where the next run begins: segment and offset.
    fn position(&self, py: Python<'_>) -> Result<(u32, u32)> {
        py.detach(|| {
            let export = self.export.lock().unwrap_or_else(left_in_the_middle);
            let position = export.as_ref().ok_or(Failure::ExportClosed)?.manifest().position;
            Ok((position.segment, position.offset))
        })
    }

    /// Removes the files of hours that began before a wall time; how many.
    fn forget(&self, py: Python<'_>, before_ms: u64) -> Result<u64> {
        py.detach(|| {
            let mut export = self.export.lock().unwrap_or_else(left_in_the_middle);
            Ok(export.as_mut().ok_or(Failure::ExportClosed)?.forget(before_ms)?)
        })
    }

    /// Leaves the folder to others, after a run that is under way.
    fn close(&self, py: Python<'_>) {
        self.stop();
        py.detach(|| drop(self.export.lock().unwrap_or_else(left_in_the_middle).take()));
    }
}

impl Export {
    /// Runs in a thread that gives way to others.
    fn run_quietly(&self, export: &mut mq9_export::Export, until: Option<Lsn>) -> Result<Summary> {
        let state = &self.state;
        let run = || {
            // Refused or not: it is a courtesy.
            let _ = rustix::process::nice(NICE);
            export.run(until, &mut |progress| state.advance(progress))
        };
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("mq9-export".to_owned());
            let thread = thread.spawn_scoped(scope, run);
            let thread = thread.map_err(|e| Failure::io("start", "the export thread", e))?;
            match thread.join() {
                Ok(outcome) => Ok(outcome?),
                Err(_) => Err(Failure::ExportClosed),
            }
        })
    }
}

/// The CRC32C of some bytes: what files of an export are checked by.
#[pyfunction]
pub fn crc32c(py: Python<'_>, data: &[u8]) -> u32 {
    py.detach(|| mq9_export::crc32c(data))
}
