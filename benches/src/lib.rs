//! What the benchmarks share: stores in directories of their own, clocks and payloads.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mq9_core::disk::OsDisk;
use mq9_core::log::SyncMode;
use mq9_core::store::{Ack, AckKind, Fetch, FetchOutcome, NewMailbox, Options, Send, Store};
use mq9_core::time::Now;
use tempfile::TempDir;

/// Whatever fails ends the benchmark.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// An empty directory on the disk that cargo builds on, or in `MQ9_BENCH_DIR`. Goes when dropped.
pub fn scratch() -> TempDir {
    let root = std::env::var("MQ9_BENCH_DIR").unwrap_or_else(|_| {
        let built = std::env::current_exe().expect("the benchmark has a path");
        built.parent().map_or_else(|| ".".into(), |dir| dir.display().to_string())
    });
    TempDir::with_prefix_in("mq9-bench-", root).expect("a directory for the benchmark's data")
}

/// Opens the store in `dir` without syncing.
pub fn open(dir: &Path) -> Result<Store> {
    let options = Options { sync: SyncMode::None, ..Options::default() };
    Ok(Store::open(Arc::new(OsDisk::new(dir)?), options, 42, clock())?)
}

/// Both clocks, as a server reads them once per batch of commands.
pub fn clock() -> Now {
    use std::sync::OnceLock;
    static START: OnceLock<Instant> = OnceLock::new();
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mono = START.get_or_init(Instant::now).elapsed();
    Now { wall_ms: wall.as_millis() as u64, mono_ms: mono.as_millis() as u64 }
}

/// Bytes without pattern.
pub fn payload(len: usize) -> Vec<u8> {
    (0..len as u64).map(|n| (mix(n) >> 32) as u8).collect()
}

/// A number without visible relation to `n`.
pub fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_add(0x9E37_79B9_7F4A_7C15).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ (n >> 31)
}

/// The address of one of many mailboxes.
pub fn address(n: usize) -> String {
    format!("tenant.agent.{n:08}")
}

/// Creates a mailbox without a policy of its own.
pub fn create(store: &mut Store, address: &str, now: Now) -> Result<()> {
    Ok(store.create_mailbox(&NewMailbox { address, ..NewMailbox::default() }, now)?)
}

/// Appends `count` messages to one mailbox, flushed every `batch`.
pub fn append(
    store: &mut Store,
    address: &str,
    payload: &[u8],
    count: usize,
    batch: usize,
) -> Result<()> {
    for begin in (0..count).step_by(batch) {
        let now = clock();
        for _ in begin..count.min(begin + batch) {
            store.send(address, &Send::new(payload), now)?;
        }
        store.flush()?;
    }
    Ok(())
}

/// Fetches and acknowledges up to `batch` messages and looks at each; returns how many there were.
pub fn consume(store: &mut Store, address: &str, group: &str, batch: usize) -> Result<usize> {
    let now = clock();
    let outcome = store.fetch(Fetch::group(address, group, batch), now)?;
    let FetchOutcome::Messages(messages) = outcome else { return Ok(0) };
    let mut last = None;
    let mut bytes = 0;
    for (meta, message) in messages.iter() {
        last = Some(meta.msg_id);
        bytes += message.payload.len();
    }
    std::hint::black_box(bytes);
    if let Some(msg_id) = last {
        let kind = AckKind::Done { only: false };
        store.ack(&Ack { address, group, msg_ids: &[msg_id], kind }, now)?;
    }
    store.flush()?;
    Ok(messages.len())
}

/// How long `work` takes.
pub fn time<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let begin = Instant::now();
    let outcome = work();
    (begin.elapsed(), outcome)
}

/// Time this thread has had on a processor: what others and the disk do does not count.
pub fn processor_ns() -> f64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    spent.tv_sec as f64 * 1e9 + spent.tv_nsec as f64
}
