//! Dead letters that go back where they came from.

use mq9_core::error::Error;
use mq9_core::jetstream::{level_of_letter, stream_of_subject};
use mq9_core::store::{Publish, Send};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::access::Given;
use crate::enum_names;
use crate::errors::{Failure, Result};
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

/// Stores a message in the stream of `subject`, which is looked for in `near` first, and removes the one of another
/// stream that it is made of, in one step. Its number; nothing if no stream has the subject.
#[pyfunction]
#[pyo3(signature = (store, stream, seq, subject, payload, *, near, headers, now=None))]
#[expect(clippy::too_many_arguments, reason = "keywords in Python")]
pub fn send_letter_back(
    py: Python<'_>,
    store: &Store,
    stream: String,
    seq: u64,
    subject: String,
    payload: PyBackedBytes,
    near: String,
    headers: PyBackedBytes,
    now: Given,
) -> Result<Option<u64>> {
    store.access().write(py, now, move |store, now| {
        let missing = || Failure::from(Error::MessageNotFound);
        let from = store.find_stream(&stream).ok_or_else(missing)?;
        let msg_id = seq.checked_sub(1).ok_or_else(missing)?;
        let Some(to) = stream_of_subject(store, &subject, &near) else { return Ok(None) };
        let publish = Publish {
            subject: &subject,
            level: level_of_letter(store, to, &headers, &payload),
            headers: &headers,
            payload: &payload,
            ..Publish::default()
        };
        Ok::<_, Failure>(Some(store.send_letter_back((from, msg_id), to, &publish, now)?))
    })
}

/// How many messages were given up since the store was opened, by address or subject; those of others come last.
#[pyfunction]
pub fn dead_counts(py: Python<'_>, store: &Store) -> Result<(Vec<(String, u64)>, u64)> {
    store.access().read(py, None, |store, _| {
        let counts = store.dead_counts();
        let by_origin = counts.by_origin().map(|(origin, count)| (origin.to_owned(), count));
        Ok((by_origin.collect(), counts.others()))
    })
}
