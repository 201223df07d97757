//! Data folders of nodes that do not run: what they hold, and how they enter and leave a cluster.

use std::path::Path;
use std::sync::Arc;

use mq9_cluster::Digest;
use mq9_core::disk::OsDisk;
use mq9_core::error::{Error, Result};
use mq9_core::store::{Options, Store};
use mq9_runtime::clock;

/// Where a folder stands in the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The last message of the stream that it holds.
    pub sequence: u64,
    /// Digest of the stream up to there.
    pub digest: String,
    /// The term it knows of.
    pub term: u64,
}

fn place(store: &Store) -> Place {
    let at = store.last_tie().unwrap_or_default().at;
    Place { sequence: at.sequence, digest: Digest(at.digest).to_string(), term: at.term }
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.display().to_string();
    |e| Error::io("open", path, e)
}

fn disk(path: &Path) -> Result<Arc<OsDisk>> {
    OsDisk::existing(path).map(Arc::new).map_err(failed(path))
}

fn random(path: &Path) -> Result<u64> {
    getrandom::u64().map_err(std::io::Error::other).map_err(failed(path))
}

fn member(path: &Path) -> Result<Store> {
    Store::open_member(disk(path)?, Options::default(), random(path)?, clock::now(), u64::MAX)
}

/// Where the folder of a node stands.
pub fn place_of(path: &Path) -> Result<Place> {
    member(path).map(|store| place(&store))
}

/// Digest of all that the folder of a node holds behind message `keep` of the stream: later ones are cut off. Nodes
/// that stand at the same message hold the same.
pub fn state(path: &Path, keep: u64) -> Result<u128> {
    let (disk, now) = (disk(path)?, clock::now());
    let store = Store::open_member(disk, Options::default(), random(path)?, now, keep)?;
    Ok(store.state_digest())
}

/// Makes the folder of a single node the first of a cluster whose stream is not there yet.
pub fn seed(path: &Path) -> Result<Place> {
    let store = Store::open(disk(path)?, Options::default(), random(path)?, clock::now())?;
    seeded(store, path)
}

/// Makes the folder of a node the first of a cluster whose stream is made anew.
pub fn reseed(path: &Path) -> Result<Place> {
    seeded(member(path)?, path)
}

fn seeded(mut store: Store, path: &Path) -> Result<Place> {
    let digest = u128::from(random(path)?) << 64 | u128::from(random(path)?) | 1;
    store.seed(digest, clock::now())?;
    let place = place(&store);
    store.close()?;
    Ok(place)
}

/// Makes the folder of a node one of a single node; where it stood.
pub fn leave(path: &Path) -> Result<Place> {
    let store = member(path)?;
    let place = place(&store);
    store.leave(clock::now())?;
    Ok(place)
}
