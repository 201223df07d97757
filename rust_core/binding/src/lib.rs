//! The Python module `mq9._core`.
//!
//! Converts arguments, calls `mq9-core`, converts the results back. Decisions about the product
//! belong in the core, everything per connection in Python.

mod access;
mod activity;
mod batch;
mod broker;
mod broker_types;
mod cluster;
mod codes;
mod connection;
mod enum_names;
mod errors;
mod export;
mod fetching;
mod json;
mod letters;
mod messages;
mod noted;
mod panics;
mod policy_changes;
mod sockets;
mod store;
mod streams;
mod subscriptions;
mod tls;
mod types;
mod wait;

use pyo3::prelude::*;

/// The store of mq9, in Rust.
#[pymodule]
mod _core {
    use super::*;

    #[pymodule_export]
    use super::activity::{latency_bounds_us, list_activity, list_groups, watch_mailboxes};
    #[pymodule_export]
    use super::broker::Broker;
    #[pymodule_export]
    use super::broker_types::{BrokerStats, ConnectionStats, Limits, Permissions};
    #[pymodule_export]
    use super::cluster::{
        ClusterNode, NodeStatus, cluster_leave, cluster_place, cluster_reseed, cluster_seed,
        cluster_state,
    };
    #[pymodule_export]
    use super::codes::Codes;
    #[pymodule_export]
    use super::connection::Connection;
    #[pymodule_export]
    use super::export::{Export, ExportSummary, crc32c};
    #[pymodule_export]
    use super::json::json_select;
    #[pymodule_export]
    use super::letters::{dead_counts, send_back, send_letter_back};
    #[pymodule_export]
    use super::messages::{Completion, Message, NewMessage, Waiting};
    #[pymodule_export]
    use super::noted::send_noted;
    #[pymodule_export]
    use super::panics::end_process_on_panic;
    #[pymodule_export]
    use super::store::Store;
    #[pymodule_export]
    use super::streams::{
        check_declared, query_stream, remove_from_stream, stream_bytes, stream_detail, stream_names,
    };
    #[pymodule_export]
    use super::subscriptions::{SubscriptionInfo, SubscriptionList};
    #[pymodule_export]
    use super::tls::{Certificate, TlsConfig};
    #[pymodule_export]
    use super::types::{Damage, GroupInfo, MailboxInfo, Policy, StoreInfo};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        errors::register(module)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
