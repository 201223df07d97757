//! The class `ClusterNode`: a node of a cluster beside the store that it keeps up to date.

use std::path::PathBuf;
use std::time::Duration;

use mq9_node::folder::{self, Place};
use mq9_node::{Node, Role, Server, Settings, Status};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

use crate::errors::{Failure, Result};
use crate::store::Store;

/// What a node is at.
#[pyclass(frozen, module = "mq9._core")]
pub struct NodeStatus(Status);

#[pymethods]
impl NodeStatus {
    /// `starting`, `following`, `leading`, `demoted` or `stopped`.
    #[getter]
    fn role(&self) -> &'static str {
        match self.0.role {
            Role::Starting => "starting",
            Role::Following => "following",
            Role::Leading => "leading",
            Role::Demoted => "demoted",
            Role::Stopped => "stopped",
        }
    }

    /// The term of the last claim.
    #[getter]
    fn term(&self) -> u64 {
        self.0.term
    }

    /// Who leads; 0 for nobody.
    #[getter]
    fn leader(&self) -> u32 {
        self.0.leader
    }

    /// The last message of the stream that was taken.
    #[getter]
    fn sequence(&self) -> u64 {
        self.0.sequence
    }

    /// Messages of the stream that are known of and not taken.
    #[getter]
    fn lag(&self) -> u64 {
        self.0.last.saturating_sub(self.0.sequence)
    }

    /// Digest of the stream up to `sequence`.
    #[getter]
    fn digest(&self) -> &str {
        &self.0.digest
    }

    /// Of a demoted node: what stays of its log.
    #[getter]
    fn keep(&self) -> u64 {
        self.0.keep
    }

    /// What keeps the node from working.
    #[getter]
    fn trouble(&self) -> Option<&str> {
        self.0.trouble.as_deref()
    }

    /// Of a stopped node: the stream is not what it should be, and somebody has to look at it.
    #[getter]
    fn is_alarm(&self) -> bool {
        self.0.is_alarm
    }

    /// Whether the stream can be reached.
    #[getter]
    fn connected(&self) -> bool {
        self.0.connected
    }

    /// Whether the stream answers: for a leader, that replies leave.
    #[getter]
    fn answers(&self) -> bool {
        self.0.answers
    }

    /// Counts changes of role, leader, connection or trouble.
    #[getter]
    fn changes(&self) -> u64 {
        self.0.changes
    }
}

/// The last message of the stream that a node's folder holds, the digest up to there, and the term.
type PlaceOf = (u64, String, u64);

fn told(place: mq9_core::error::Result<Place>) -> Result<PlaceOf> {
    let Place { sequence, digest, term } = place.map_err(Failure::from)?;
    Ok((sequence, digest, term))
}

/// Where the folder of a node that does not run stands.
#[pyfunction]
pub fn cluster_place(py: Python<'_>, path: PathBuf) -> Result<PlaceOf> {
    told(py.detach(|| folder::place_of(&path)))
}

/// Digest of what the folder of a node holds behind message `keep` of the stream; later ones are cut off.
#[pyfunction]
pub fn cluster_state(py: Python<'_>, path: PathBuf, keep: u64) -> Result<String> {
    let state = py.detach(|| folder::state(&path, keep)).map_err(Failure::from)?;
    Ok(format!("{state:032x}"))
}

/// Makes the folder of a single node the first of a cluster.
#[pyfunction]
pub fn cluster_seed(py: Python<'_>, path: PathBuf) -> Result<PlaceOf> {
    told(py.detach(|| folder::seed(&path)))
}

/// Makes the folder of a node the first of a cluster whose stream is made anew.
#[pyfunction]
pub fn cluster_reseed(py: Python<'_>, path: PathBuf) -> Result<PlaceOf> {
    told(py.detach(|| folder::reseed(&path)))
}

/// Makes the folder of a node one of a single node.
#[pyfunction]
pub fn cluster_leave(py: Python<'_>, path: PathBuf) -> Result<PlaceOf> {
    told(py.detach(|| folder::leave(&path)))
}

/// A node of a cluster, on a thread of its own.
#[pyclass(frozen, module = "mq9._core")]
pub struct ClusterNode {
    node: Node,
    store: Py<Store>,
}

#[pymethods]
impl ClusterNode {
    #[new]
    #[pyo3(signature = (store, *, cluster, node, members, servers, replicas=3, lease_ms=3000, max_payload=1_048_576))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn new(
        py: Python<'_>,
        store: Py<Store>,
        cluster: String,
        node: u32,
        members: Vec<u32>,
        servers: Vec<(String, Option<(String, String)>)>,
        replicas: u32,
        lease_ms: u64,
        max_payload: u64,
    ) -> PyResult<Self> {
        let servers = servers.into_iter().map(|(address, user)| Server { address, user }).collect();
        let incarnation = 0;
        let settings = Settings {
            cluster,
            node,
            members,
            servers,
            replicas,
            lease_ms,
            max_payload,
            incarnation,
        };
        let access = store.get().access();
        let node = py.detach(|| {
            access.with_open(|open| open.map(|open| Node::start(settings, open)).transpose())
        });
        let node = node.map_err(|error| PyOSError::new_err(error.to_string()))?;
        let node = node.ok_or(Failure::Closed)?;
        Ok(ClusterNode { node, store })
    }

    /// What the node is at.
    fn status(&self) -> NodeStatus {
        NodeStatus(self.node.status())
    }

    /// Waits until something has changed since `seen` changes, or the time is over.
    fn wait(&self, py: Python<'_>, seen: u64, timeout_ms: u64) -> NodeStatus {
        NodeStatus(py.detach(|| self.node.wait(seen, Duration::from_millis(timeout_ms))))
    }

    /// Has a leader give its lead to node `to`, or to whichever is best placed.
    #[pyo3(signature = (to=None))]
    fn yield_to(&self, to: Option<u32>) {
        self.node.yield_to(to);
    }

    /// Ends the node; a leader gives its lead away first, if another node can take it.
    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.node.stop());
    }

    /// Ends the node and closes its store without a checkpoint: it is to be opened again, up to `keep`.
    fn abandon(&self, py: Python<'_>) -> Result<()> {
        py.detach(|| {
            self.node.stop();
            self.store.get().access().abandon();
        });
        Ok(())
    }
}
