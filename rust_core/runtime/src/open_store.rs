//! An open store with its threads: one that syncs, one that keeps it in shape.
//!
//! Lock order: upkeep's turn, then the store.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mq9_core::disk::{Disk, OsDisk};
use mq9_core::error::Result as CoreResult;
use mq9_core::log::{Lsn, SyncMode, SyncThread};
use mq9_core::store::{FairLock, Options, ReadOnlyDisk, Store};
use mq9_core::time::Now;

use crate::clock;
use crate::durability::Durability;
use crate::error::{Failure, Result};
use crate::upkeep::{Upkeep, UpkeepThread};

/// An open store with its threads.
pub struct OpenStore {
    // Fields are dropped in this order: the threads go before what they use.
    upkeep_thread: Option<UpkeepThread>,
    sync_thread: Option<SyncThread>,
    upkeep: Arc<Upkeep>,
    durability: Arc<Durability>,
    store: Arc<FairLock>,
    sync: SyncMode,
    read_only: bool,
}

impl OpenStore {
    /// Opens the store in the directory `path`; `maintain_every` zero leaves upkeep to the caller.
    pub fn open(
        path: &Path,
        options: Options,
        maintain_every: Duration,
        now: Now,
    ) -> Result<OpenStore> {
        let failed = |action, source| Failure::io(action, path.display().to_string(), source);
        let disk = OsDisk::new(path).map_err(|e| failed("open", e))?;
        OpenStore::on(Arc::new(disk), path, options, maintain_every, now)
    }

    /// Opens the store in the directory `path` to be looked at. Nothing in it is changed.
    pub fn look(path: &Path, options: Options, now: Now) -> Result<OpenStore> {
        let failed = |source| Failure::io("open", path.display().to_string(), source);
        let disk = OsDisk::existing(path).map_err(failed)?;
        let disk = Arc::new(ReadOnlyDisk::new(Arc::new(disk)));
        let options = Options { sync: SyncMode::None, ..options };
        let opened = OpenStore::on(disk, path, options, Duration::ZERO, now)?;
        Ok(OpenStore { read_only: true, ..opened })
    }

    fn on(
        disk: Arc<dyn Disk>,
        path: &Path,
        options: Options,
        maintain_every: Duration,
        now: Now,
    ) -> Result<OpenStore> {
        let failed = |action, source| Failure::io(action, path.display().to_string(), source);
        let entropy = getrandom::u64().map_err(|e| failed("get randomness for", e.into()))?;
        let store = Store::open(disk, options, entropy, now)?;
        let syncer = store.syncer();
        let durability = Arc::new(Durability::new(Arc::clone(&syncer)));
        let told = Arc::downgrade(&durability);
        syncer.listen(move || {
            if let Some(durability) = told.upgrade() {
                durability.advanced();
            }
        });
        let store = Arc::new(FairLock::new(store));
        let upkeep = Arc::new(Upkeep::new(Arc::clone(&store)));
        let sync_thread = match options.sync {
            SyncMode::None => None,
            SyncMode::Always | SyncMode::Interval { .. } => {
                let thread = SyncThread::start(syncer, clock::mono);
                Some(thread.map_err(|e| failed("start the sync thread of", e))?)
            }
        };
        let upkeep_thread = if maintain_every.is_zero() {
            None
        } else {
            let thread = UpkeepThread::start(Arc::clone(&upkeep), maintain_every);
            Some(thread.map_err(|e| failed("start the upkeep thread of", e))?)
        };
        let sync = options.sync;
        let read_only = false;
        Ok(OpenStore { upkeep_thread, sync_thread, upkeep, durability, store, sync, read_only })
    }

    /// Writes a checkpoint and closes the store.
    pub fn close(self) -> Result<()> {
        let OpenStore { upkeep_thread, sync_thread, upkeep, durability, store, read_only, .. } =
            self;
        drop(upkeep_thread);
        drop(sync_thread);
        drop(upkeep);
        // A broken store is not saved: what it holds in memory is not to be trusted.
        let broken = store.is_broken();
        let closed = match store.take() {
            Some(store) if !read_only => store.close().map_err(Failure::from),
            None if broken => Err(Failure::BrokenAtClose),
            Some(_) | None => Ok(()),
        };
        durability.close();
        closed
    }

    /// Itself, unless a panic has made it useless.
    pub fn check_whole(&self) -> Result<&OpenStore> {
        if self.store.is_broken() { Err(Failure::Broken) } else { Ok(self) }
    }

    /// Itself, unless it was opened to be looked at.
    pub fn check_writable(&self) -> Result<&OpenStore> {
        if self.read_only { Err(Failure::ReadOnly) } else { Ok(self) }
    }

    /// Runs a command that writes, and hands what it logged to the operating system.
    pub fn write<T, E: From<Failure>>(
        &self,
        command: impl FnOnce(&mut Store) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        self.check_writable()?;
        let (done, flushed, _) = self.run(command);
        if self.sync != SyncMode::Always {
            // Here what is written is acknowledged.
            self.durability.advanced();
        }
        // Of two failures the command's own says more.
        let done = done?;
        flushed.map_err(Failure::from)?;
        Ok(done)
    }

    /// Runs a command that only reads. What time has brought about on the way is written too, but a
    /// disk that takes no more does not keep anyone from reading.
    pub fn read<T>(&self, command: impl FnOnce(&mut Store) -> T) -> T {
        let (done, flushed, acknowledged_more) = self.run(command);
        // Mostly nothing was written. To wake the broker's thread each time would cost it more than messages do.
        if self.sync != SyncMode::Always && (acknowledged_more || flushed.is_err()) {
            self.durability.advanced();
        }
        done
    }

    /// What the command gave, whether all could be written, and whether that acknowledges more.
    fn run<T>(&self, command: impl FnOnce(&mut Store) -> T) -> (T, CoreResult<()>, bool) {
        let mut store = self.store.lock();
        let acknowledged = store.acknowledged();
        let done = command(&mut store);
        let flushed = store.flush();
        let acknowledged_more = store.acknowledged() != acknowledged;
        let upkeep_wanted = store.asks_for_upkeep();
        drop(store);
        if upkeep_wanted {
            self.upkeep.wake();
        }
        (done, flushed, acknowledged_more)
    }

    /// The ticket given, or else the end of the log. Unless it is acknowledged, everything is
    /// written, so that it can be.
    pub fn ticket(&self, ticket: Option<u64>) -> Result<Lsn> {
        let end = self.store.lock().end();
        let ticket = ticket.map_or(end, Lsn::from_number);
        if self.durability.acknowledged() < ticket {
            self.write(|_| Ok::<_, Failure>(()))?;
        }
        Ok(ticket)
    }

    /// Writes and syncs everything done so far, without keeping the store from others; returns how far that is.
    pub fn sync(&self) -> CoreResult<Lsn> {
        let syncer = {
            let mut store = self.store.lock();
            store.flush()?;
            store.syncer()
        };
        syncer.round()
    }

    /// The end of the log.
    pub fn end(&self) -> Lsn {
        self.store.lock().end()
    }

    /// The store itself, for callers who run many commands at once.
    pub fn store(&self) -> &Arc<FairLock> {
        &self.store
    }

    /// Who waits for acknowledgements.
    pub fn durability(&self) -> &Arc<Durability> {
        &self.durability
    }

    /// Checkpoints, compaction, removal of dead segments.
    pub fn upkeep(&self) -> &Arc<Upkeep> {
        &self.upkeep
    }
}
