//! The thread of a node, and the way to it.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use mq9_cluster::{Config, Digest, Member, Position, Recovered, Writer};
use mq9_core::store::FairLock;
use mq9_core::wire::tie::StreamPosition;
use mq9_runtime::{Bell, OpenStore, clock};
use xxhash_rust::xxh3::xxh3_64;

use crate::driver::{ANYBODY, Driver, Wishes};
use crate::link::Server;
use crate::status::{Shared, Status};
use crate::stream::Stream;

/// What a node is told at its start.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The cluster's name: letters, digits, `-` and `_`.
    pub cluster: String,
    /// This node's number, from 1.
    pub node: u32,
    /// The numbers of all nodes.
    pub members: Vec<u32>,
    /// The servers that keep the stream.
    pub servers: Vec<Server>,
    /// How many of them keep each message.
    pub replicas: u32,
    /// How long nothing is heard of a leader before another claims.
    pub lease_ms: u64,
    /// The largest message of a client: the servers must take it with what belongs to it.
    pub max_payload: u64,
    /// Tells this process from any other; chosen at the start.
    pub incarnation: u64,
}

impl Settings {
    /// What a server must take as one message.
    pub fn needed_payload(&self) -> u64 {
        batch_bytes(self.max_payload)
    }
}

/// A batch has at most so many bytes: a full outbox, or one message of a client with its properties.
pub fn batch_bytes(max_payload: u64) -> u64 {
    max_payload.saturating_add(1 << 20).max(4 << 20)
}

/// A node while it runs. Ends when dropped.
pub struct Node {
    shared: Arc<Shared>,
    wishes: Arc<Wishes>,
    bell: Arc<Bell>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Node {
    /// Starts a node with a store that was opened as one of several.
    pub fn start(mut settings: Settings, open: &OpenStore) -> io::Result<Node> {
        let store: Arc<FairLock> = Arc::clone(open.store());
        let incarnation = getrandom::u64().map_err(io::Error::other)?;
        settings.incarnation = incarnation;
        let writer = Writer { node: settings.node, incarnation };
        let mut config = Config::new(xxh3_64(settings.cluster.as_bytes()), 1, writer, incarnation);
        config.lease_ms = settings.lease_ms;
        // Two that claim at once do no harm: the stream takes one.
        config.spread_ms = settings.lease_ms / 12;
        config.heartbeat_ms = settings.lease_ms / 3;
        config.margin_ms = settings.lease_ms / 6;
        config.answer_ms = config.answer_ms.min(settings.lease_ms / 2);
        let recovered = recovered(&store)?;
        let member = Member::new(config, recovered, clock::now().mono_ms);
        let stream = Stream::new(&settings.cluster, incarnation, settings.replicas);
        let (shared, wishes) = (Arc::new(Shared::default()), Arc::new(Wishes::default()));
        let bell = Arc::new(Bell::new()?);
        // Nothing is answered before this node leads.
        store.lock().syncer().begin_lease(0);
        let driver = Driver::new(
            settings,
            store,
            member,
            stream,
            Arc::clone(&shared),
            Arc::clone(&wishes),
            Arc::clone(&bell),
        );
        let thread =
            std::thread::Builder::new().name("mq9-node".to_owned()).spawn(|| driver.run())?;
        Ok(Node { shared, wishes, bell, thread: Mutex::new(Some(thread)) })
    }

    /// What the node is at.
    pub fn status(&self) -> Status {
        self.shared.get()
    }

    /// Waits until something has changed since `seen` changes, but not for ever.
    pub fn wait(&self, seen: u64, patience: Duration) -> Status {
        self.shared.wait(seen, patience)
    }

    /// Has a leader give its lead to node `to`, or to whichever is best placed.
    pub fn yield_to(&self, to: Option<u32>) {
        self.wishes.yield_to.store(to.unwrap_or(ANYBODY), Ordering::SeqCst);
        self.bell.ring();
    }

    /// Ends the thread. A leader gives its lead away first, if another node can take it.
    pub fn stop(&self) {
        self.wishes.stop.store(true, Ordering::SeqCst);
        self.bell.ring();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic there has said so itself.
            let _ = thread.join();
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What the store's own log says about the stream.
fn recovered(store: &FairLock) -> io::Result<Recovered> {
    let Some(tie) = store.lock().last_tie() else {
        return Err(io::Error::other("the store was not opened as one of several"));
    };
    let at = position(tie.at);
    Ok(match tie.before {
        None => Recovered { certain: at, uncertain: None },
        Some(before) if before.sequence + 1 == tie.at.sequence => {
            Recovered { certain: position(before), uncertain: Some(at) }
        }
        Some(_) => return Err(io::Error::other("a batch that does not follow the one before it")),
    })
}

fn position(place: StreamPosition) -> Position {
    let StreamPosition { sequence, digest, term, leader } = place;
    let leader = leader.map(|(node, incarnation)| Writer { node, incarnation });
    Position { sequence, digest: Digest(digest), term, leader }
}
