//! The class `Store`: one method for each command of the core.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use mq9_core::mailbox::Policy;
use mq9_core::store::{
    self as core, Ack, Changes, Fetch, NewMailbox, Options, Query, Quotas, Retention,
};
use mq9_runtime::{OpenStore, clock};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyDict, PyTuple};

use crate::access::{Access, Given};
use crate::batch::{append_many, number_of};
use crate::enum_names;
use crate::errors::{Failure, Result};
use crate::fetching;
use crate::messages::{Completion, Message, Sent, to_python};
use crate::policy_changes::PolicyChanges;
use crate::types::{Damage, MailboxInfo, StoreInfo};
use crate::wait::wait_durable;

/// As many messages as whoever wants them gone has seen, if that is told.
type Most = Option<u64>;

/// A store of mailboxes in a directory.
#[pyclass(frozen, module = "mq9._core")]
pub struct Store {
    path: PathBuf,
    access: Access,
}

impl Store {
    pub fn access(&self) -> &Access {
        &self.access
    }
}

#[pymethods]
impl Store {
    #[new]
    #[pyo3(signature = (
        path, *, sync="always", sync_interval_ms=100, segment_bytes=67_108_864,
        allocate_bytes=4_194_304, checkpoint_bytes=268_435_456, ack_wait_ms=30_000,
        max_groups=1024, group_ttl_ms=0, max_mailboxes=0, max_mailboxes_per_user=0, max_store_bytes=0,
        max_bytes_per_user=0, max_waits=0, max_waits_per_user=0, max_waits_per_connection=1024,
        maintain_every_ms=1000, read_only=false, member_keep=None, now=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        sync: &str,
        sync_interval_ms: u64,
        segment_bytes: u32,
        allocate_bytes: u32,
        checkpoint_bytes: u64,
        ack_wait_ms: u64,
        max_groups: usize,
        group_ttl_ms: u64,
        max_mailboxes: u64,
        max_mailboxes_per_user: u64,
        max_store_bytes: u64,
        max_bytes_per_user: u64,
        max_waits: usize,
        max_waits_per_user: usize,
        max_waits_per_connection: usize,
        maintain_every_ms: u64,
        read_only: bool,
        member_keep: Option<u64>,
        now: Given,
    ) -> Result<Store> {
        let sync = enum_names::sync_mode(sync, sync_interval_ms)?;
        let options = Options {
            segment_bytes,
            allocate_bytes,
            sync,
            ack_wait_ms,
            max_groups,
            group_ttl_ms,
            quotas: Quotas {
                max_mailboxes,
                max_mailboxes_per_user,
                max_store_bytes,
                max_bytes_per_user,
                max_waits,
                max_waits_per_user,
                max_waits_per_connection,
            },
            checkpoint_bytes,
        };
        let (now, every) = (clock::given(now), Duration::from_millis(maintain_every_ms));
        let open = py.detach(|| match member_keep {
            _ if read_only => OpenStore::look(&path, options, now),
            Some(keep) => OpenStore::open_member(&path, options, every, now, keep),
            None => OpenStore::open(&path, options, every, now),
        })?;
        Ok(Store { path, access: Access::new(open) })
    }

    /// The directory.
    #[getter]
    fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// True once the store is closed.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.access.is_closed(py)
    }

    /// Writes a checkpoint and closes the store; closing it again does nothing.
    fn close(&self, py: Python<'_>) -> Result<()> {
        self.access.close(py)
    }

    fn __enter__(slf: Py<Store>) -> Py<Store> {
        slf
    }

    #[pyo3(signature = (*_exc))]
    fn __exit__(&self, py: Python<'_>, _exc: &Bound<'_, PyTuple>) -> Result<()> {
        self.close(py)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let state = if self.closed(py) { "closed" } else { "open" };
        format!("<Store {:?}, {state}>", self.path)
    }

    /// Creates a mailbox.
    #[pyo3(signature = (
        address, *, ttl_ms=0, desc="", latest=false, work_queue=false, public=false,
        tier="durable", discard="old", max_msgs=0, max_bytes=0, max_msg_size=0, max_age_ms=0,
        message_ttls_ms=None, ack_wait_ms=0, max_deliver=0, max_ack_pending=0, group_ttl_ms=None, dedup_window_ms=0,
        dead_letter=None, owner=None, now=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn create_mailbox(
        &self,
        py: Python<'_>,
        address: String,
        ttl_ms: u64,
        desc: &str,
        latest: bool,
        work_queue: bool,
        public: bool,
        tier: &str,
        discard: &str,
        max_msgs: u64,
        max_bytes: u64,
        max_msg_size: u64,
        max_age_ms: u64,
        message_ttls_ms: Option<BTreeMap<u8, u64>>,
        ack_wait_ms: u64,
        max_deliver: u32,
        max_ack_pending: u32,
        group_ttl_ms: Option<u64>,
        dedup_window_ms: u64,
        dead_letter: Option<&str>,
        owner: Option<&str>,
        now: Given,
    ) -> Result<()> {
        let policy = Policy {
            latest,
            work_queue,
            public,
            tier: enum_names::tier(tier)?,
            discard: enum_names::discard(discard)?,
            max_msgs,
            max_bytes,
            max_msg_size,
            max_age_ms,
            message_ttls: enum_names::message_ttls(&message_ttls_ms.unwrap_or_default())?,
            ack_wait_ms,
            max_deliver,
            max_ack_pending,
            group_ttl_ms: enum_names::group_ttl(group_ttl_ms),
            dedup_window_ms,
            dead_letter: dead_letter.map(Box::from),
            owner: owner.map(Box::from),
            ..Policy::default()
        };
        let desc = desc.to_owned();
        self.access.write(py, now, move |store, now| {
            let new = NewMailbox { address: &address, ttl_ms, desc: &desc, policy };
            store.create_mailbox(&new, now)
        })
    }

    /// Changes what is given of a mailbox.
    #[pyo3(signature = (address, policy=None, *, ttl_ms=None, desc=None, now=None))]
    fn update_mailbox(
        &self,
        py: Python<'_>,
        address: String,
        policy: Option<&Bound<'_, PyDict>>,
        ttl_ms: Option<u64>,
        desc: Option<String>,
        now: Given,
    ) -> Result<()> {
        let policy = PolicyChanges::read(policy)?;
        self.access.write(py, now, move |store, now| {
            let changes = Changes { ttl_ms, desc: desc.as_deref() };
            store.update_mailbox(&address, changes, |changed| policy.apply(changed), now)
        })
    }

    /// Removes a mailbox with everything in it.
    #[pyo3(signature = (address, *, expected=None, now=None))]
    fn remove_mailbox(
        &self,
        py: Python<'_>,
        address: String,
        expected: Most,
        now: Given,
    ) -> Result<()> {
        self.access.write(py, now, move |store, now| {
            expected.map_or(Ok(()), |most| store.expect_messages(&address, most, now))?;
            store.remove_mailbox(&address, now)
        })
    }

    /// Removes a group; messages stay.
    #[pyo3(signature = (address, group, *, now=None))]
    fn remove_group(
        &self,
        py: Python<'_>,
        address: String,
        group: String,
        now: Given,
    ) -> Result<()> {
        self.access.write(py, now, move |store, now| store.remove_group(&address, &group, now))
    }

    /// Removes all messages of a mailbox, delayed ones too, and returns how many.
    #[pyo3(signature = (address, *, expected=None, now=None))]
    fn purge(&self, py: Python<'_>, address: String, expected: Most, now: Given) -> Result<u64> {
        self.access.write(py, now, move |store, now| {
            expected.map_or(Ok(()), |most| store.expect_messages(&address, most, now))?;
            store.purge(&address, now)
        })
    }

    /// Stores messages in order and returns their ids, -1 for those that are delayed.
    #[pyo3(signature = (address, messages, *, now=None))]
    fn append_many(
        &self,
        py: Python<'_>,
        address: String,
        messages: &Bound<'_, PyAny>,
        now: Given,
    ) -> Result<Vec<i64>> {
        let sent = Sent::collect(messages)?;
        self.access.write(py, now, move |store, now| {
            let list: Vec<_> = sent.iter().map(Sent::borrow).collect();
            append_many(store, &address, &list, now)
        })
    }

    /// Stores a message and returns its id, or -1 if it is delayed.
    #[pyo3(signature = (
        address, payload, *, level=5, key=String::new(), tags=String::new(), headers=None, delay_ms=0, ttl_ms=0,
        now=None
    ))]
    #[pyo3(text_signature = "($self, address, payload, *, level=5, key='', tags='', headers=b'', \
                          delay_ms=0, ttl_ms=0, now=None)")]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn send(
        &self,
        py: Python<'_>,
        address: String,
        payload: PyBackedBytes,
        level: u8,
        key: String,
        tags: String,
        headers: Option<PyBackedBytes>,
        delay_ms: u64,
        ttl_ms: u64,
        now: Given,
    ) -> Result<i64> {
        let level = enum_names::level("level", level)?;
        self.access.write(py, now, move |store, now| {
            let (key, tags) = (&*key, &*tags);
            let headers = headers.as_deref().unwrap_or_default();
            let plain = core::Send::new(&payload);
            let message = core::Send { level, key, tags, headers, delay_ms, ttl_ms, ..plain };
            store.send(&address, &message, now).map(number_of)
        })
    }

    /// Fetches messages, or waits for some if there are none and `wait_ms` is given.
    #[pyo3(signature = (
        address, *, group=None, member=None, conn=0, deliver="latest", from_time_ms=None,
        from_id=None, force=false, max_msgs=100, max_bytes=1_048_576, max_level=10, ack_wait_ms=0,
        wait_ms=0, now=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn fetch<'py>(
        &self,
        py: Python<'py>,
        address: String,
        group: Option<&str>,
        member: Option<&str>,
        conn: u64,
        deliver: &str,
        from_time_ms: Option<u64>,
        from_id: Option<u64>,
        force: bool,
        max_msgs: usize,
        max_bytes: u64,
        max_level: u8,
        ack_wait_ms: u64,
        wait_ms: u64,
        now: Given,
    ) -> Result<Bound<'py, PyAny>> {
        let start = enum_names::start(deliver, from_time_ms, from_id)?;
        let max_level = enum_names::level("max_level", max_level)?;
        let group = fetching::group_of(group, member, force)?;
        let request = Fetch {
            address,
            group,
            start,
            max_msgs,
            max_bytes,
            max_level,
            ack_wait_ms,
            held: true,
            wait_ms,
            conn,
            user: None,
        };
        fetching::fetch(&self.access, py, request, now)
    }

    /// Takes the answers of fetches whose wait is over.
    #[pyo3(signature = (*, now=None))]
    fn completions(&self, py: Python<'_>, now: Given) -> Result<Vec<Completion>> {
        let done = self.access.read(py, now, |store, now| {
            store.tick(now);
            Ok(store.completions(now))
        })?;
        Ok(done.into_iter().map(|done| Completion::new(py, done)).collect::<PyResult<_>>()?)
    }

    /// Gives up a wait; true if it was waiting.
    fn cancel_wait(&self, py: Python<'_>, waiter: u64) -> Result<bool> {
        self.access.read(py, None, move |store, _| Ok(store.cancel_wait(waiter)))
    }

    /// Ends the waits of a connection that has closed and returns what it held to its groups.
    #[pyo3(signature = (conn, *, now=None))]
    fn disconnect(&self, py: Python<'_>, conn: u64, now: Given) -> Result<()> {
        self.access.read(py, now, move |store, now| {
            store.disconnect(conn, now);
            Ok(())
        })
    }

    /// Acknowledges, returns, extends or gives up deliveries.
    #[pyo3(signature = (
        address, group, msg_ids, *, kind="ack", only=false, delay_ms=0, now=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn ack(
        &self,
        py: Python<'_>,
        address: String,
        group: String,
        msg_ids: Vec<u64>,
        kind: &str,
        only: bool,
        delay_ms: u64,
        now: Given,
    ) -> Result<()> {
        let kind = enum_names::ack_kind(kind, only, delay_ms)?;
        self.access.write(py, now, move |store, now| {
            store.ack(&Ack { address: &address, group: &group, msg_ids: &msg_ids, kind }, now)
        })
    }

    /// Finds messages in `msg_id` order, without moving anything.
    #[pyo3(signature = (
        address, *, key=None, tags=Vec::new(), since_ms=0, after_id=None, before_id=None, limit=100,
        max_bytes=1_048_576, newest=false, now=None
    ))]
    #[pyo3(text_signature = "($self, address, *, key=None, tags=(), since_ms=0, after_id=None, \
                          before_id=None, limit=100, max_bytes=1048576, newest=False, now=None)")]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn query(
        &self,
        py: Python<'_>,
        address: String,
        key: Option<String>,
        tags: Vec<String>,
        since_ms: u64,
        after_id: Option<u64>,
        before_id: Option<u64>,
        limit: usize,
        max_bytes: u64,
        newest: bool,
        now: Given,
    ) -> Result<Vec<Py<Message>>> {
        let batch = self.access.read(py, now, move |store, now| {
            let (key, tags) =
                (key.as_deref(), &*tags.iter().map(String::as_str).collect::<Vec<_>>());
            let query =
                Query { key, tags, since_ms, after_id, before_id, limit, max_bytes, newest };
            store.query(&address, &query, now)
        })?;
        Ok(to_python(py, &batch)?)
    }

    /// Delayed messages in the order they were sent; `msg_id` is the delay number, `create_ms` when they are due.
    #[pyo3(signature = (address, *, after_id=None, limit=100, max_bytes=1_048_576, now=None))]
    #[pyo3(
        text_signature = "($self, address, *, after_id=None, limit=100, max_bytes=1048576, now=None)"
    )]
    fn query_delayed(
        &self,
        py: Python<'_>,
        address: String,
        after_id: Option<u64>,
        limit: usize,
        max_bytes: u64,
        now: Given,
    ) -> Result<Vec<Py<Message>>> {
        let batch = self.access.read(py, now, move |store, now| {
            store.query_delayed(&address, after_id, limit, max_bytes, now)
        })?;
        Ok(to_python(py, &batch)?)
    }

    /// Takes a delayed message back before it is due.
    #[pyo3(signature = (address, delay_id, *, now=None))]
    fn cancel_delayed(
        &self,
        py: Python<'_>,
        address: String,
        delay_id: u64,
        now: Given,
    ) -> Result<()> {
        self.access.write(py, now, move |store, now| store.cancel_delayed(&address, delay_id, now))
    }

    /// Deletes a message.
    #[pyo3(signature = (address, msg_id, *, now=None))]
    fn delete(&self, py: Python<'_>, address: String, msg_id: u64, now: Given) -> Result<()> {
        self.access.write(py, now, move |store, now| store.delete(&address, msg_id, now))
    }

    /// What is known of a mailbox.
    #[pyo3(signature = (address, *, now=None))]
    fn mailbox(&self, py: Python<'_>, address: String, now: Given) -> Result<MailboxInfo> {
        let info = self.access.read(py, now, move |store, now| store.mailbox(&address, now))?;
        Ok(MailboxInfo::new(py, info)?)
    }

    /// What is known of these mailboxes; None for those that are not there. Ends early after many groups.
    #[pyo3(signature = (addresses, *, now=None))]
    fn mailboxes_at(
        &self,
        py: Python<'_>,
        addresses: Vec<String>,
        now: Given,
    ) -> Result<Vec<Option<MailboxInfo>>> {
        let found =
            self.access.read(py, now, move |store, now| store.mailboxes_at(&addresses, now))?;
        let info = |info: Option<_>| info.map(|info| MailboxInfo::new(py, info)).transpose();
        Ok(found.into_iter().map(info).collect::<PyResult<_>>()?)
    }

    /// The message of each key; None for those that have none. Stops early at `max_bytes`: the list is shorter then.
    #[pyo3(signature = (address, keys, *, max_bytes=1_048_576, now=None))]
    fn messages_of(
        &self,
        py: Python<'_>,
        address: String,
        keys: Vec<String>,
        max_bytes: u64,
        now: Given,
    ) -> Result<Vec<Option<Py<Message>>>> {
        let found = self
            .access
            .read(py, now, move |store, now| store.messages_of(&address, &keys, max_bytes, now))?;
        let first = |batch| Ok(to_python(py, &batch)?.pop());
        found.into_iter().map(first).collect()
    }

    /// Up to `limit` mailboxes from slot `start` on, and the slot to go on with, if any.
    #[pyo3(signature = (start=0, limit=1000, *, now=None))]
    fn mailboxes(
        &self,
        py: Python<'_>,
        start: u32,
        limit: usize,
        now: Given,
    ) -> Result<(Vec<MailboxInfo>, Option<u32>)> {
        let (list, next) = self.access.read(py, now, move |store, now| {
            store.tick(now);
            Ok(store.mailboxes(start, limit))
        })?;
        let list = list.into_iter().map(|info| MailboxInfo::new(py, info));
        Ok((list.collect::<PyResult<_>>()?, next))
    }

    /// What is known of the store.
    fn info(&self, py: Python<'_>) -> Result<StoreInfo> {
        self.access.enter(py, |open| {
            let (info, waiting, refusals, syncs) = open.read(|store| {
                let owned = |cause: Option<&str>| cause.map(str::to_owned);
                let (now, last) = (owned(store.refusing()), owned(store.last_refusal()));
                let refusals = (now, last, store.refused());
                (store.info(), store.waiting(), refusals, store.syncer().latencies())
            });
            let stopped = open.durability().stopped();
            Ok(StoreInfo::new(info, waiting, stopped, refusals, &syncs, open.upkeep().failure()))
        })
    }

    /// What was found damaged since the store was opened, opening included.
    fn damage(&self, py: Python<'_>) -> Result<Vec<Damage>> {
        self.access.read(py, None, |store, _| Ok(store.damage().iter().map(Damage::new).collect()))
    }

    /// Does what is due by the clock; true if more is due already.
    #[pyo3(signature = (*, now=None))]
    fn tick(&self, py: Python<'_>, now: Given) -> Result<bool> {
        self.access.read(py, now, |store, now| Ok(store.tick(now)))
    }

    /// Milliseconds until something is due by the clock, or None.
    #[pyo3(signature = (*, now=None))]
    fn sleep_ms(&self, py: Python<'_>, now: Given) -> Result<Option<u64>> {
        self.access.read(py, now, |store, now| Ok(store.sleep_ms(now)))
    }

    /// Writes a checkpoint, so that the next open is quick.
    fn checkpoint(&self, py: Python<'_>) -> Result<()> {
        self.access.enter(py, |open| Ok(open.check_writable()?.upkeep().checkpoint()?))
    }

    /// Does the upkeep that is due; true if something was done.
    fn maintain(&self, py: Python<'_>) -> Result<bool> {
        self.access.enter(py, |open| Ok(open.check_writable()?.upkeep().round()?))
    }

    /// Keeps segments from `segment` on for a reader of the log, dead ones up to `most_bytes`; 0 keeps none.
    fn keep_segments(&self, py: Python<'_>, segment: u32, most_bytes: u64) -> Result<()> {
        let kept = (most_bytes > 0).then_some(Retention { from_segment: segment, most_bytes });
        self.access.read(py, None, move |store, _| {
            store.keep(kept);
            Ok(())
        })
    }

    /// The end of the log: what was done so far is promised once acknowledged this far.
    fn end(&self, py: Python<'_>) -> Result<u64> {
        self.access.enter(py, |open| Ok(open.end().number()))
    }

    /// How far the log is acknowledged.
    fn acknowledged(&self, py: Python<'_>) -> Result<u64> {
        self.access.enter(py, |open| Ok(open.durability().acknowledged().number()))
    }

    /// Blocks until the log is acknowledged up to `ticket`, or up to its end.
    #[pyo3(signature = (ticket=None, *, timeout_ms=None))]
    fn wait_durable(
        &self,
        py: Python<'_>,
        ticket: Option<u64>,
        timeout_ms: Option<u64>,
    ) -> Result<()> {
        let until = timeout_ms.map(|ms| Instant::now() + Duration::from_millis(ms));
        let (durability, ticket) =
            self.access.enter(py, |open| Ok((open.durability().clone(), open.ticket(ticket)?)))?;
        wait_durable(py, &durability, ticket, until)
    }

    /// A descriptor that becomes readable when more has been acknowledged or writes have stopped.
    fn fileno(&self, py: Python<'_>) -> Result<i32> {
        self.access.enter(py, |open| {
            let descriptor = open.durability().descriptor();
            descriptor.map_err(|e| Failure::io("make", "a descriptor", e))
        })
    }

    /// Resets the descriptor of `fileno` and returns how far the log is acknowledged.
    fn read_acknowledged(&self, py: Python<'_>) -> Result<u64> {
        self.access.enter(py, |open| {
            open.durability().reset();
            Ok(open.durability().acknowledged().number())
        })
    }
}
