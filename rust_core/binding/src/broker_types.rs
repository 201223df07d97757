//! Limits, permissions and counters of the broker, as Python sees them: frozen, without behaviour.

use std::sync::Arc;

use mq9_core::engine::Engine;
use mq9_core::front;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// What a connection may use.
#[pyclass(frozen, module = "mq9._core")]
pub struct Limits(pub front::Limits);

#[pymethods]
impl Limits {
    #[new]
    #[pyo3(signature = (*, max_payload=1_048_576, max_control_line=4096, max_pending=67_108_864,
        max_subscriptions=0, ping_interval_ms=120_000, ping_max=2, write_deadline_ms=10_000))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        max_payload: usize,
        max_control_line: usize,
        max_pending: usize,
        max_subscriptions: usize,
        ping_interval_ms: u64,
        ping_max: u32,
        write_deadline_ms: u64,
    ) -> Self {
        Self(front::Limits {
            max_payload,
            max_control_line,
            max_pending,
            max_subscriptions,
            ping_interval_ms,
            ping_max,
            write_deadline_ms,
        })
    }
}

/// What the clients of a user may publish and subscribe to.
#[pyclass(frozen, module = "mq9._core")]
pub struct Permissions(pub Arc<front::Permissions>);

#[pymethods]
impl Permissions {
    #[new]
    #[pyo3(signature = (*, publish_allow=None, publish_deny=Vec::new(), subscribe_allow=None,
        subscribe_deny=Vec::new(), responses_max=None, responses_ttl_ms=None))]
    fn new(
        publish_allow: Option<Vec<String>>,
        publish_deny: Vec<String>,
        subscribe_allow: Option<Vec<String>>,
        subscribe_deny: Vec<String>,
        responses_max: Option<u64>,
        responses_ttl_ms: Option<u64>,
    ) -> PyResult<Self> {
        let responses = match (responses_max, responses_ttl_ms) {
            (None, None) => None,
            (max, ttl_ms) => Some((max.unwrap_or(0), ttl_ms.unwrap_or(0))),
        };
        let builder = front::PermissionsBuilder {
            publish_allow,
            publish_deny,
            subscribe_allow,
            subscribe_deny,
            responses,
        };
        let rules = builder.build().map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Self(Arc::new(rules)))
    }
}

/// Counters over all connections, past ones included.
#[derive(Default)]
#[pyclass(frozen, get_all, module = "mq9._core")]
pub struct BrokerStats {
    connections: usize,
    total_connections: u64,
    subscriptions: usize,
    in_msgs: u64,
    in_bytes: u64,
    out_msgs: u64,
    out_bytes: u64,
    slow_consumers: u64,
    refused: u64,
    lookups: u64,
    lookup_hits: u64,
    inserts: u64,
    removes: u64,
    /// How long replies to messages waited for the log: counts of each bucket.
    commit_counts: Vec<u64>,
    commit_sum_us: u64,
}

impl BrokerStats {
    pub fn new(engine: &Engine) -> Self {
        let (front, commits) = (engine.front(), engine.commit_latencies());
        let totals = front.totals();
        Self {
            connections: front.connections(),
            total_connections: totals.connections,
            subscriptions: front.subscriptions(),
            in_msgs: totals.in_msgs,
            in_bytes: totals.in_bytes,
            out_msgs: totals.out_msgs,
            out_bytes: totals.out_bytes,
            slow_consumers: totals.slow_consumers,
            refused: totals.refused,
            lookups: totals.lookups,
            lookup_hits: totals.lookup_hits,
            inserts: totals.inserts,
            removes: totals.removes,
            commit_counts: commits.counts().to_vec(),
            commit_sum_us: commits.sum_us(),
        }
    }
}

/// Counters of one connection.
#[pyclass(frozen, get_all, module = "mq9._core")]
pub struct ConnectionStats {
    cid: u64,
    in_msgs: u64,
    in_bytes: u64,
    out_msgs: u64,
    out_bytes: u64,
    pending_bytes: usize,
    subscriptions: usize,
    rtt_us: u64,
    started_ms: u64,
    last_activity_ms: u64,
}

impl ConnectionStats {
    /// Instants of the monotonic clock become Unix time by `epoch_ms`, what lies between the two.
    pub fn new(stats: front::ConnStats, epoch_ms: u64) -> Self {
        Self {
            cid: stats.cid,
            in_msgs: stats.in_msgs,
            in_bytes: stats.in_bytes,
            out_msgs: stats.out_msgs,
            out_bytes: stats.out_bytes,
            pending_bytes: stats.pending_bytes,
            subscriptions: stats.subscriptions,
            rtt_us: stats.rtt_us,
            started_ms: epoch_ms + stats.opened_us / 1000,
            last_activity_ms: epoch_ms + stats.active_us / 1000,
        }
    }
}
