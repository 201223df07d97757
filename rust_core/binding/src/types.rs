//! Values about a store, its mailboxes and groups, as Python sees them: frozen, without behaviour.

use std::collections::BTreeMap;
use std::fmt::Display;

use mq9_core::latency::Latencies;
use mq9_core::store;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::enum_names;

/// How a mailbox behaves; 0 is no limit wherever a limit is meant.
#[pyclass(frozen, get_all, module = "mq9._core")]
pub struct Policy {
    /// Keep only the newest message.
    latest: bool,
    /// Remove messages once a group has acknowledged them.
    work_queue: bool,
    /// Listed for everyone.
    public: bool,
    /// Where messages are kept: `durable` or `memory`.
    tier: &'static str,
    /// What makes room at a limit: `old` or `new`.
    discard: &'static str,
    /// Most messages held.
    max_msgs: u64,
    /// Most bytes held, as stored.
    max_bytes: u64,
    /// Largest message, as stored.
    max_msg_size: u64,
    /// Longest life of a message.
    max_age_ms: u64,
    /// Life of a message that says nothing of it itself, by the number of its level.
    message_ttls_ms: BTreeMap<u8, u64>,
    /// How long a member may hold a message; 0 is the default of the store.
    ack_wait_ms: u64,
    /// Deliveries after which a message is dead.
    max_deliver: u32,
    /// Most unacknowledged messages of a group.
    max_ack_pending: u32,
    /// How long a group lives that nobody uses: 0 is for ever, `None` as long as the store says.
    group_ttl_ms: Option<u64>,
    /// How long the id of a send is remembered; 0 is the default.
    dedup_window_ms: u64,
    /// Where dead messages go.
    dead_letter: Option<String>,
    /// The user who created the mailbox.
    owner: Option<String>,
}

impl Policy {
    fn new(policy: mq9_core::mailbox::Policy) -> Policy {
        Policy {
            latest: policy.latest,
            work_queue: policy.work_queue,
            public: policy.public,
            tier: enum_names::of_tier(policy.tier),
            discard: enum_names::of_discard(policy.discard),
            max_msgs: policy.max_msgs,
            max_bytes: policy.max_bytes,
            max_msg_size: policy.max_msg_size,
            max_age_ms: policy.max_age_ms,
            message_ttls_ms: enum_names::of_message_ttls(&policy.message_ttls),
            ack_wait_ms: policy.ack_wait_ms,
            max_deliver: policy.max_deliver,
            max_ack_pending: policy.max_ack_pending,
            group_ttl_ms: enum_names::of_group_ttl(policy.group_ttl_ms),
            dedup_window_ms: policy.dedup_window_ms,
            dead_letter: policy.dead_letter.map(String::from),
            owner: policy.owner.map(String::from),
        }
    }
}

#[pymethods]
impl Policy {
    fn __repr__(&self) -> String {
        let flag = |set| if set { "True" } else { "False" };
        let group_ttl_ms = or_none(self.group_ttl_ms);
        let text = |text: &Option<String>| or_none(text.as_ref().map(|text| format!("{text:?}")));
        let (dead_letter, owner) = (text(&self.dead_letter), text(&self.owner));
        format!(
            "Policy(latest={}, work_queue={}, public={}, tier={:?}, discard={:?}, max_msgs={}, \
             max_bytes={}, max_msg_size={}, max_age_ms={}, message_ttls_ms={:?}, ack_wait_ms={}, max_deliver={}, \
             max_ack_pending={}, group_ttl_ms={group_ttl_ms}, dedup_window_ms={}, \
             dead_letter={dead_letter}, owner={owner})",
            flag(self.latest),
            flag(self.work_queue),
            flag(self.public),
            self.tier,
            self.discard,
            self.max_msgs,
            self.max_bytes,
            self.max_msg_size,
            self.max_age_ms,
            self.message_ttls_ms,
            self.ack_wait_ms,
            self.max_deliver,
            self.max_ack_pending,
            self.dedup_window_ms,
        )
    }
}

/// What is known of a mailbox.
#[pyclass(frozen, get_all, module = "mq9._core")]
pub struct MailboxInfo {
    /// Its address.
    address: String,
    /// Free text.
    desc: String,
    /// When it was created, wall time.
    created_ms: u64,
    /// When it expires, wall time; 0 is never.
    expires_ms: u64,
    /// Messages that can be fetched.
    messages: u64,
    /// Messages that are not due yet.
    delayed: u64,
    /// Bytes of both, as stored.
    bytes: u64,
    /// The `msg_id` of the next message.
    next_id: u64,
    /// How it behaves.
    policy: Py<Policy>,
    /// Its groups.
    groups: Py<PyTuple>,
}

impl MailboxInfo {
    pub fn new(py: Python<'_>, info: store::MailboxInfo) -> PyResult<MailboxInfo> {
        let groups = info.groups.into_iter().map(|group| GroupInfo::new(py, group));
        let groups = groups.collect::<PyResult<Vec<_>>>()?;
        Ok(MailboxInfo {
            address: info.address,
            desc: info.desc,
            created_ms: info.created_ms,
            expires_ms: info.expires_ms,
            messages: info.messages,
            delayed: info.delayed,
            bytes: info.bytes,
            next_id: info.next_id,
            policy: Py::new(py, Policy::new(info.policy))?,
            groups: PyTuple::new(py, groups)?.unbind(),
        })
    }
}

#[pymethods]
impl MailboxInfo {
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let MailboxInfo { address, messages, delayed, bytes, next_id, .. } = self;
        let groups = self.groups.bind(py).repr()?;
        Ok(format!(
            "MailboxInfo(address={address:?}, messages={messages}, delayed={delayed}, \
             bytes={bytes}, next_id={next_id}, groups={groups})"
        ))
    }
}

/// What is known of a group.
#[pyclass(frozen, get_all, module = "mq9._core")]
pub struct GroupInfo {
    /// Its name.
    name: String,
    /// Per level, the first `msg_id` not delivered yet.
    cursors: Py<PyTuple>,
    /// Messages delivered and not acknowledged.
    outstanding: u64,
}

impl GroupInfo {
    fn new(py: Python<'_>, info: store::GroupInfo) -> PyResult<Py<GroupInfo>> {
        let cursors = PyTuple::new(py, info.cursors)?.unbind();
        Py::new(py, GroupInfo { name: info.name, cursors, outstanding: info.outstanding })
    }
}

#[pymethods]
impl GroupInfo {
    fn __repr__(&self) -> String {
        format!("GroupInfo(name={:?}, outstanding={})", self.name, self.outstanding)
    }
}

/// What is known of the store.
#[pyclass(frozen, get_all, module = "mq9._core")]
pub struct StoreInfo {
    /// Mailboxes.
    mailboxes: u64,
    /// Segment files.
    segments: u64,
    /// Bytes of records in them.
    log_bytes: u64,
    /// Bytes of records that hold live messages.
    live_bytes: u64,
    /// Size of the newest checkpoint.
    checkpoint_bytes: u64,
    /// How many times the store has been opened.
    epoch: u32,
    /// Fetches that wait.
    waiting: usize,
    /// Why nothing more is acknowledged, if so.
    writes_stopped: Option<String>,
    /// Why what is new is refused at the moment, if it is; this ends by itself.
    refusing: Option<String>,
    /// Why that was so the last time, be it over or not.
    last_refusal: Option<String>,
    /// How many times something was refused for such a reason.
    refused: u64,
    /// How long syncs took: counts of each bucket.
    sync_counts: Vec<u64>,
    /// How long they took in all, in microseconds.
    sync_sum_us: u64,
    /// What the last round of upkeep failed with, if it did.
    last_maintenance_error: Option<String>,
}

impl StoreInfo {
    pub fn new(
        info: store::StoreInfo,
        waiting: usize,
        writes_stopped: Option<String>,
        (refusing, last_refusal, refused): (Option<String>, Option<String>, u64),
        syncs: &Latencies,
        last_maintenance_error: Option<String>,
    ) -> StoreInfo {
        StoreInfo {
            mailboxes: info.mailboxes,
            segments: info.segments,
            log_bytes: info.log_bytes,
            live_bytes: info.live_bytes,
            checkpoint_bytes: info.checkpoint_bytes,
            epoch: info.epoch,
            waiting,
            writes_stopped,
            refusing,
            last_refusal,
            refused,
            sync_counts: syncs.counts().to_vec(),
            sync_sum_us: syncs.sum_us(),
            last_maintenance_error,
        }
    }
}

#[pymethods]
impl StoreInfo {
    fn __repr__(&self) -> String {
        let quoted = |text: &Option<String>| or_none(text.as_ref().map(|text| format!("{text:?}")));
        format!(
            "StoreInfo(mailboxes={}, segments={}, log_bytes={}, live_bytes={}, \
             checkpoint_bytes={}, epoch={}, waiting={}, writes_stopped={}, refusing={}, \
             last_refusal={}, refused={}, last_maintenance_error={})",
            self.mailboxes,
            self.segments,
            self.log_bytes,
            self.live_bytes,
            self.checkpoint_bytes,
            self.epoch,
            self.waiting,
            quoted(&self.writes_stopped),
            quoted(&self.refusing),
            quoted(&self.last_refusal),
            self.refused,
            quoted(&self.last_maintenance_error),
        )
    }
}

/// One place of damage that was found.
#[pyclass(frozen, get_all, module = "mq9._core")]
pub struct Damage {
    /// The file's name in the directory.
    file: String,
    /// Where in it.
    offset: u64,
    /// How many bytes, 0 if unknown.
    bytes: u64,
    /// `record`, `torn_tail`, `segment`, `checkpoint`, `orphan` or `message`.
    kind: &'static str,
    /// The mailbox whose message was lost, if it is known.
    mailbox: Option<String>,
    /// The message that was lost, if it is known.
    msg_id: Option<u64>,
    /// How many messages were lost with it, as far as they are known.
    messages: u64,
    /// The file that keeps the bytes, if any does.
    set_aside: Option<String>,
    /// One sentence for the operator.
    text: String,
}

impl Damage {
    pub fn new(damage: &store::Damage) -> Damage {
        let store::Damage { file, offset, bytes, kind, set_aside, lost } = damage.clone();
        let (mailbox, msg_id) = match &kind {
            store::DamageKind::Message { mailbox, msg_id } => (Some(mailbox), Some(*msg_id)),
            store::DamageKind::Record
            | store::DamageKind::TornTail
            | store::DamageKind::CutShort
            | store::DamageKind::Segment
            | store::DamageKind::Checkpoint
            | store::DamageKind::Orphan => (None, None),
        };
        let (mailbox, text) = (mailbox.cloned(), damage.to_string());
        let messages = lost.messages + u64::from(msg_id.is_some());
        let kind = enum_names::of_damage(&kind);
        Damage { file, offset, bytes, kind, mailbox, msg_id, messages, set_aside, text }
    }
}

#[pymethods]
impl Damage {
    fn __repr__(&self) -> String {
        format!("Damage(kind={:?}, {:?})", self.kind, self.text)
    }

    fn __str__(&self) -> &str {
        &self.text
    }
}

/// A value as it stands in a `repr`.
pub fn or_none(value: Option<impl Display>) -> String {
    value.map_or_else(|| "None".to_owned(), |value| value.to_string())
}
