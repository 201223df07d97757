//! An open store with its threads: one that syncs, one that keeps it in shape, and the broker's, if it has one.
//!
//! While a broker serves the store, its thread carries out everybody's commands as orders. A thread that the system
//! makes wait for a processor would else keep the lock meanwhile, and all messages would wait with it.
//!
//! Lock order: upkeep's turn, then the store.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mq9_core::disk::{Disk, OsDisk};
use mq9_core::error::Result as CoreResult;
use mq9_core::log::{Lsn, SyncMode, SyncThread};
use mq9_core::store::{FairLock, Options, ReadOnlyDisk, Store};
use mq9_core::time::Now;

use crate::clock;
use crate::durability::Durability;
use crate::error::{Failure, Result};
use crate::order_queue::OrderQueue;
use crate::upkeep::{Upkeep, UpkeepThread};

/// An open store with its threads.
pub struct OpenStore {
    // Fields are dropped in this order: the threads go before what they use.
    upkeep_thread: Option<UpkeepThread>,
    sync_thread: Option<SyncThread>,
    shared: Arc<SharedStore>,
    broker: OnceLock<Arc<OrderQueue>>,
    read_only: bool,
}

/// What it takes to carry out a command, on whichever thread.
struct SharedStore {
    upkeep: Arc<Upkeep>,
    durability: Arc<Durability>,
    store: Arc<FairLock>,
    sync: SyncMode,
}

/// What a command may have done.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

impl SharedStore {
    /// What the command gave, and whether all could be written.
    fn run<T>(&self, access: Access, command: impl FnOnce(&mut Store) -> T) -> (T, CoreResult<()>) {
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
        // After a read mostly nothing was written. To wake the broker's thread each time would cost it more than
        // messages do.
        let is_news = access == Access::Write || acknowledged_more || flushed.is_err();
        if self.sync != SyncMode::Always && is_news {
            // Here what is written is acknowledged.
            self.durability.advanced();
        }
        (done, flushed)
    }
}

/// As what a store is opened.
#[derive(Clone, Copy)]
enum How {
    Alone,
    /// Of a cluster, up to this message of its stream.
    Member(u64),
    Look,
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
        OpenStore::on(Arc::new(disk), path, options, maintain_every, now, How::Alone)
    }

    /// Opens the store of a node of a cluster in the directory `path`, up to message `keep` of the stream.
    pub fn open_member(
        path: &Path,
        options: Options,
        maintain_every: Duration,
        now: Now,
        keep: u64,
    ) -> Result<OpenStore> {
        let failed = |source| Failure::io("open", path.display().to_string(), source);
        let disk = OsDisk::new(path).map_err(failed)?;
        OpenStore::on(Arc::new(disk), path, options, maintain_every, now, How::Member(keep))
    }

    /// Opens the store in the directory `path` to be looked at. Nothing in it is changed.
    pub fn look(path: &Path, options: Options, now: Now) -> Result<OpenStore> {
        let failed = |source| Failure::io("open", path.display().to_string(), source);
        let disk = OsDisk::existing(path).map_err(failed)?;
        let disk = Arc::new(ReadOnlyDisk::new(Arc::new(disk)));
        let options = Options { sync: SyncMode::None, ..options };
        let opened = OpenStore::on(disk, path, options, Duration::ZERO, now, How::Look)?;
        Ok(OpenStore { read_only: true, ..opened })
    }

    fn on(
        disk: Arc<dyn Disk>,
        path: &Path,
        options: Options,
        maintain_every: Duration,
        now: Now,
        how: How,
    ) -> Result<OpenStore> {
        let failed = |action, source| Failure::io(action, path.display().to_string(), source);
        let entropy = getrandom::u64().map_err(|e| failed("get randomness for", e.into()))?;
        let store = match how {
            How::Alone => Store::open(disk, options, entropy, now)?,
            How::Look => Store::look(disk, options, entropy, now)?,
            How::Member(keep) => Store::open_member(disk, options, entropy, now, keep)?,
        };
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
        let shared = Arc::new(SharedStore { upkeep, durability, store, sync: options.sync });
        let (broker, read_only) = (OnceLock::new(), false);
        Ok(OpenStore { upkeep_thread, sync_thread, shared, broker, read_only })
    }

    /// Writes a checkpoint and closes the store.
    pub fn close(self) -> Result<()> {
        let OpenStore { upkeep_thread, sync_thread, shared, read_only, .. } = self;
        drop(upkeep_thread);
        drop(sync_thread);
        let SharedStore { store, durability, .. } = &*shared;
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

    /// Closes the store without a checkpoint, as a crash would: what it holds is not what the cluster holds.
    pub fn abandon(self) {
        let OpenStore { upkeep_thread, sync_thread, shared, .. } = self;
        drop(upkeep_thread);
        drop(sync_thread);
        drop(shared.store.take());
        shared.durability.close();
    }

    /// Itself, unless a panic has made it useless.
    pub fn check_whole(&self) -> Result<&OpenStore> {
        if self.shared.store.is_broken() { Err(Failure::Broken) } else { Ok(self) }
    }

    /// Itself, unless it was opened to be looked at.
    pub fn check_writable(&self) -> Result<&OpenStore> {
        if self.read_only { Err(Failure::ReadOnly) } else { Ok(self) }
    }

    /// From now on the thread that takes these orders carries out all commands. A store has one broker: the first.
    pub(crate) fn serve(&self, broker: &Arc<OrderQueue>) {
        let _ = self.broker.set(Arc::clone(broker));
    }

    /// Runs a command that writes, and hands what it logged to the operating system.
    pub fn write<T: Send + 'static, E: From<Failure> + Send + 'static>(
        &self,
        command: impl FnOnce(&mut Store) -> std::result::Result<T, E> + Send + 'static,
    ) -> std::result::Result<T, E> {
        self.check_writable()?;
        let (done, flushed) = self.run(Access::Write, command);
        // Of two failures the command's own says more.
        let done = done?;
        flushed.map_err(Failure::from)?;
        Ok(done)
    }

    /// Runs a command that only reads. What time has brought about on the way is written too, but a
    /// disk that takes no more does not keep anyone from reading.
    pub fn read<T: Send + 'static>(
        &self,
        command: impl FnOnce(&mut Store) -> T + Send + 'static,
    ) -> T {
        self.run(Access::Read, command).0
    }

    fn run<T: Send + 'static>(
        &self,
        access: Access,
        command: impl FnOnce(&mut Store) -> T + Send + 'static,
    ) -> (T, CoreResult<()>) {
        let Some(broker) = self.broker.get() else { return self.shared.run(access, command) };
        let input = (Arc::clone(&self.shared), command);
        let done = broker.ask(input, move |(shared, command), _, _| shared.run(access, command));
        // After the end of the broker nobody else uses the store.
        done.unwrap_or_else(|(shared, command)| shared.run(access, command))
    }

    /// The ticket given, or else the end of the log. Unless it is acknowledged, everything is
    /// written, so that it can be.
    pub fn ticket(&self, ticket: Option<u64>) -> Result<Lsn> {
        let ticket = ticket.map_or_else(|| self.end(), Lsn::from_number);
        if self.durability().acknowledged() < ticket {
            self.write(|_| Ok::<_, Failure>(()))?;
        }
        Ok(ticket)
    }

    /// Writes and syncs everything done so far, without keeping the store from others; returns how far that is. A
    /// leader of a cluster may yet have to cut off what the stream does not have: that does not count.
    pub fn sync(&self) -> CoreResult<Lsn> {
        let (syncer, flushed) = self.run(Access::Write, |store| store.syncer());
        flushed?;
        syncer.round()?;
        Ok(syncer.settled())
    }

    /// The end of the log.
    pub fn end(&self) -> Lsn {
        self.read(|store| store.end())
    }

    /// The store itself, for callers who run many commands at once.
    pub fn store(&self) -> &Arc<FairLock> {
        &self.shared.store
    }

    /// Who waits for acknowledgements.
    pub fn durability(&self) -> &Arc<Durability> {
        &self.shared.durability
    }

    /// Checkpoints, compaction, removal of dead segments.
    pub fn upkeep(&self) -> &Arc<Upkeep> {
        &self.shared.upkeep
    }
}
