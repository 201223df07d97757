//! Subscriptions of clients, as Python sees them.

use std::sync::{Arc, Mutex, PoisonError};

use mq9_core::front::{self, SubId};
use mq9_runtime::Runtime;
use pyo3::prelude::*;

/// The subscriptions that some connections had when it was made.
#[pyclass(frozen, module = "mq9._core")]
pub struct SubscriptionList {
    runtime: Arc<Runtime>,
    /// Each with its connection; those that were not looked at yet.
    left: Mutex<Vec<(u64, SubId)>>,
}

impl SubscriptionList {
    pub fn new(runtime: Arc<Runtime>, all: Vec<(u64, SubId)>) -> Self {
        let mut left = all;
        // They are taken from the end.
        left.reverse();
        Self { runtime, left: Mutex::new(left) }
    }
}

#[pymethods]
impl SubscriptionList {
    fn __len__(&self) -> usize {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The next so many, less those that have ended.
    fn take(&self, py: Python<'_>, most: usize) -> Vec<SubscriptionInfo> {
        let some = {
            let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
            let start = left.len().saturating_sub(most);
            left.split_off(start)
        };
        let found = py.detach(|| {
            self.runtime.ask(move |pump, _| {
                let front = pump.engine().front();
                let known = |&(cid, id): &(u64, SubId)| front.subscription(cid, id);
                some.iter().rev().filter_map(known).collect::<Vec<_>>()
            })
        });
        found.unwrap_or_default().into_iter().map(Into::into).collect()
    }
}

/// One subscription of a client.
#[pyclass(frozen, get_all, module = "mq9._core")]
pub struct SubscriptionInfo {
    cid: u64,
    sid: String,
    subject: String,
    queue: String,
    delivered: u64,
    max: u64,
}

impl From<front::SubscriptionInfo> for SubscriptionInfo {
    fn from(info: front::SubscriptionInfo) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self {
            cid: info.cid,
            sid: text(info.sid),
            subject: text(info.subject),
            queue: text(info.queue),
            delivered: info.delivered,
            max: info.max,
        }
    }
}
