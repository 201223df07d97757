//! Messages that are stored together with a note about them.

use mq9_core::front::Call;
use mq9_core::partition;
use mq9_core::store::Note;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::access::Given;
use crate::errors::{Failure, Result};
use crate::store::Store;

/// Stores what a client would by publishing this, and in one step a note of this key in the mailbox `address`. Nothing, or
/// the kind of a refusal and its text.
#[pyfunction]
#[pyo3(signature = (store, subject, headers, payload, *, address, key, note, now=None))]
#[expect(clippy::too_many_arguments, reason = "keywords in Python")]
pub fn send_noted(
    py: Python<'_>,
    store: &Store,
    subject: String,
    headers: PyBackedBytes,
    payload: PyBackedBytes,
    address: String,
    key: String,
    note: PyBackedBytes,
    now: Given,
) -> Result<Option<(String, String)>> {
    store.access().write(py, now, move |store, now| {
        let subject = subject.as_bytes();
        let call = Call { cid: 0, subject, reply: b"", headers: &headers, payload: &payload };
        let note = Note { address: &address, key: &key, text: &note };
        let refused = partition::send_noted(store, &call, &note, now).err();
        Ok::<_, Failure>(refused.map(|refusal| (refusal.kind.into_owned(), refusal.text)))
    })
}
