//! Streams, for monitoring.

use mq9_core::jetstream::{self, DeclaredConsumer, Detail};
use mq9_core::store::StreamQuery;
use pyo3::prelude::*;

use crate::errors::Result;
use crate::messages::{Message, to_python};
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

/// What is read of a stream: when it was created, how many messages it has, the number of the next one, some messages,
/// and where to go on.
type Page = (u64, u64, u64, Vec<Py<Message>>, Option<u64>);

/// Messages of a stream with numbers from `first` on and below `before`; none if there is none of this name.
#[pyfunction]
#[pyo3(signature = (store, name, *, prefixes=None, first=1, before=None, limit=100, max_bytes=1_048_576, newest=false))]
#[expect(clippy::too_many_arguments, reason = "keywords in Python")]
pub fn query_stream(
    py: Python<'_>,
    store: PyRef<'_, Store>,
    name: String,
    prefixes: Option<Vec<String>>,
    first: u64,
    before: Option<u64>,
    limit: usize,
    max_bytes: u64,
    newest: bool,
) -> Result<Option<Page>> {
    let prefixes = prefixes.unwrap_or_default();
    let found = store.access().read(py, None, move |store, _| {
        let Some(key) = store.find_stream(&name) else { return Ok(None) };
        let Some(info) = store.stream_info(key) else { return Ok(None) };
        let query = StreamQuery {
            prefixes: &prefixes,
            from: first.saturating_sub(1),
            before: before.map(|before| before.saturating_sub(1)),
            limit,
            max_bytes,
            newest,
        };
        Ok(Some((info, store.stream_page(key, &query)?)))
    })?;
    let Some((info, page)) = found else { return Ok(None) };
    let messages = to_python(py, &page.messages)?;
    let next = page.next.map(|next| next + 1);
    Ok(Some((info.created_ms, info.messages, info.last_seq + 1, messages, next)))
}

/// Removes a message of a stream; false if it is not there.
#[pyfunction]
pub fn remove_from_stream(
    py: Python<'_>,
    store: PyRef<'_, Store>,
    name: String,
    seq: u64,
) -> Result<bool> {
    store.access().write(py, None, move |store, now| {
        let (Some(key), Some(msg_id)) = (store.find_stream(&name), seq.checked_sub(1)) else {
            return Ok(false);
        };
        store.remove_from_stream(key, msg_id, now)
    })
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
