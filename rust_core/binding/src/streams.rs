//! Streams, for monitoring.

use mq9_core::jetstream::{self, Detail};
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
