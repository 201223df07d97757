//! Activity of mailboxes, as JSON that a reply is made of.

use mq9_core::latency::{BUCKETS, Latencies};
use mq9_core::store::Activity;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::Result;
use crate::store::Store;

/// Mailboxes that changed: whether all have to be read anew, where to go on, whether there are more, rows, places that
/// are free now.
type Watched<'py> = (bool, u64, bool, Vec<Bound<'py, PyBytes>>, Vec<u32>);

/// Mailboxes that changed after the look that returned `after`; with 0, where to begin.
#[pyfunction]
pub fn watch_mailboxes<'py>(
    py: Python<'py>,
    store: &Store,
    after: u64,
    limit: usize,
) -> Result<Watched<'py>> {
    let watched =
        store.access().read(py, None, move |store, now| Ok(store.changes(after, limit, now)))?;
    let rows = to_python(py, &watched.changed);
    Ok((watched.reset, watched.next, watched.more, rows, watched.gone))
}

/// Mailboxes from place `start` on, and the place to go on with, if any.
#[pyfunction]
pub fn list_activity<'py>(
    py: Python<'py>,
    store: &Store,
    start: u32,
    limit: usize,
) -> Result<(Vec<Bound<'py, PyBytes>>, Option<u32>)> {
    let (found, next) =
        store.access().read(py, None, move |store, now| Ok(store.activities(start, limit, now)))?;
    Ok((to_python(py, &found), next))
}

/// Groups of the mailbox in a place from number `start` on, and its address; None if the place is free.
#[pyfunction]
pub fn list_groups<'py>(
    py: Python<'py>,
    store: &Store,
    place: u32,
    start: usize,
    limit: usize,
) -> Result<Option<(String, Vec<Bound<'py, PyBytes>>)>> {
    let found = store
        .access()
        .read(py, None, move |store, now| Ok(store.group_activities(place, start, limit, now)))?;
    Ok(found.map(|(address, groups)| {
        (address, groups.iter().map(|group| PyBytes::new(py, &group.to_json())).collect())
    }))
}

/// Microseconds that everything in a bucket of a latency took less than, shortest first; the last bucket has none.
#[pyfunction]
pub fn latency_bounds_us() -> Vec<u64> {
    (0..BUCKETS).filter_map(Latencies::bound_us).collect()
}

fn to_python<'py>(py: Python<'py>, rows: &[Activity]) -> Vec<Bound<'py, PyBytes>> {
    rows.iter().map(|row| PyBytes::new(py, &row.to_json())).collect()
}
