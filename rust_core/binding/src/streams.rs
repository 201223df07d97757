//! Streams, for monitoring.

use mq9_core::jetstream::{self, DeclaredConsumer, Detail};
use pyo3::prelude::*;

use crate::errors::Result;
use crate::store::Store;

/// The names of streams, in order.
#[pyfunction]
pub fn stream_names(py: Python<'_>, store: PyRef<'_, Store>) -> Result<Vec<String>> {
    store.access().enter(py, |open| {
        let mut names: Vec<String> =
            open.read(|store| store.streams().map(|(name, _)| name.to_owned()).collect());
        names.sort_unstable();
        Ok(names)
    })
}

/// What all streams take, in bytes.
#[pyfunction]
pub fn stream_bytes(py: Python<'_>, store: PyRef<'_, Store>) -> Result<u64> {
    store.access().read(py, None, |store, _| Ok(store.stream_bytes()))
}

/// A stream as JSON in the words of nats-server's monitoring; none if there is none of this name.
#[pyfunction]
pub fn stream_detail(
    py: Python<'_>,
    store: PyRef<'_, Store>,
    name: String,
    consumers: bool,
    config: bool,
) -> Result<Option<String>> {
    let detail = Detail { consumers, config };
    let described = move |store: &mut crate::access::Core, now| {
        Ok(jetstream::stream_detail(store, &name, detail, now))
    };
    store.access().read(py, None, described)
}

/// A consumer that is declared: its stream, its name, its configuration.
pub type Asked = (String, String, String);

/// The same as the core has it.
pub fn declared((stream, name, config): Asked) -> DeclaredConsumer {
    DeclaredConsumer { stream, name, config }
}

/// Whether streams (name and configuration) and consumers (stream, name and configuration) can be made in an empty
/// store: the stream of each consumer, and what is wrong with which of all.
#[pyfunction]
pub fn check_declared(
    streams: Vec<(String, String)>,
    consumers: Vec<Asked>,
) -> (Vec<String>, Vec<(usize, String)>) {
    let consumers: Vec<DeclaredConsumer> = consumers.into_iter().map(declared).collect();
    let checked = jetstream::check(&streams, &consumers);
    (checked.homes, checked.problems)
}
