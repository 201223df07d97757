//! The status of a node, and what it has heard of the others.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What a node is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// It compares its log with the stream.
    #[default]
    Starting,
    /// It applies what another writes.
    Following,
    /// It carries out commands.
    Leading,
    /// Its store holds what the stream does not: it is to be opened again, up to [`Status::keep`].
    Demoted,
    /// It stands still, and says why.
    Stopped,
}

/// What another node said of itself last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Its number.
    pub node: u32,
    /// What it is doing.
    pub role: Role,
    /// The term it knows of.
    pub term: u64,
    /// The last message of the stream it has taken.
    pub sequence: u64,
    /// The last one that survives its end.
    pub durable: u64,
    /// Digest of the stream up to `sequence`.
    pub digest: String,
    /// Who leads, as it knows; 0 for nobody.
    pub leader: u32,
    /// Tells this process from any other.
    #[serde(default)]
    pub incarnation: u64,
    /// How long it has been there.
    #[serde(default)]
    pub age_ms: u64,
    /// The incarnation of another process with its number that it has heard of; 0 for none.
    #[serde(default)]
    pub rival: u64,
    /// Its disk takes no messages.
    #[serde(default)]
    pub is_full: bool,
}

/// What a node is at.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// What it is doing.
    pub role: Role,
    /// The term of the last claim.
    pub term: u64,
    /// Who made it; 0 for nobody.
    pub leader: u32,
    /// The last message of the stream that was taken.
    pub sequence: u64,
    /// The last one that survives the end of this process.
    pub durable: u64,
    /// Digest of the stream up to `sequence`.
    pub digest: String,
    /// The stream's last message, as far as is known: what was not taken yet is the lag.
    pub last: u64,
    /// Of a demoted node: what stays of its log.
    pub keep: u64,
    /// What keeps the node from working, if anything does.
    pub trouble: Option<String>,
    /// Of a stopped node: the stream is not what it should be, and somebody has to look at it.
    pub is_alarm: bool,
    /// A server of the stream is connected.
    pub connected: bool,
    /// The stream answers: for a leader, that replies leave.
    pub answers: bool,
    /// Counts changes of role, leader or trouble.
    pub changes: u64,
}

/// A status that others wait on.
#[derive(Default)]
pub(crate) struct Shared {
    status: Mutex<Status>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self) -> Status {
        self.lock().clone()
    }

    /// Takes over a new status, and tells whoever waits if it says something new.
    pub(crate) fn set(&self, mut status: Status) {
        let mut current = self.lock();
        let is_new =
            (status.role, status.leader, &status.trouble, status.connected, status.answers)
                != (
                    current.role,
                    current.leader,
                    &current.trouble,
                    current.connected,
                    current.answers,
                );
        status.changes = current.changes + u64::from(is_new);
        *current = status;
        drop(current);
        if is_new {
            self.changed.notify_all();
        }
    }

    /// Waits until there were more than `seen` changes, but not for ever.
    pub(crate) fn wait(&self, seen: u64, patience: Duration) -> Status {
        let same = |status: &mut Status| status.changes <= seen;
        let waited = self.changed.wait_timeout_while(self.lock(), patience, same);
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }
}
