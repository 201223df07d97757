//! Dead letters that go back where they came from.

use mq9_core::store::Send;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::access::Given;
use crate::enum_names;
use crate::errors::Result;
use crate::store::Store;

/// Stores a message in the mailbox `to` and deletes the one of `address` that it is made of, in one step.
#[pyfunction]
#[pyo3(signature = (store, address, msg_id, to, payload, *, level, key, tags, headers, now=None))]
#[expect(clippy::too_many_arguments, reason = "keywords in Python")]
pub fn send_back(
    py: Python<'_>,
    store: &Store,
    address: String,
    msg_id: u64,
    to: String,
    payload: PyBackedBytes,
    level: u8,
    key: String,
    tags: String,
    headers: PyBackedBytes,
    now: Given,
) -> Result<u64> {
    let level = enum_names::level("level", level)?;
    store.access().write(py, now, move |store, now| {
        let (key, tags, headers) = (&*key, &*tags, &*headers);
        let message = Send { level, key, tags, headers, ..Send::new(&payload) };
        store.send_back(&address, msg_id, &to, &message, now)
    })
}
