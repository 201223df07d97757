//! Changes of a mailbox's policy: values of a dictionary, by the names that the policy has in Python.

use std::collections::BTreeMap;

use mq9_core::mailbox::{Discard, MessageTtls, Policy};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::enum_names;
use crate::errors::{Failure, Result};

/// One new value.
enum Change {
    Latest(bool),
    WorkQueue(bool),
    Public(bool),
    Discard(Discard),
    MaxMsgs(u64),
    MaxBytes(u64),
    MaxMsgSize(u64),
    MaxAgeMs(u64),
    MessageTtls(MessageTtls),
    AckWaitMs(u64),
    MaxDeliver(u32),
    MaxAckPending(u32),
    GroupTtlMs(u64),
    DedupWindowMs(u64),
    DeadLetter(Option<Box<str>>),
}

/// New values; what is not among them stays.
pub struct PolicyChanges(Vec<Change>);

impl PolicyChanges {
    /// Reads a dictionary.
    pub fn read(given: Option<&Bound<'_, PyDict>>) -> Result<PolicyChanges> {
        let mut changes = Vec::new();
        for (name, value) in given.into_iter().flatten() {
            changes.push(Change::read(&name.extract::<String>()?, &value)?);
        }
        Ok(PolicyChanges(changes))
    }

    /// Changes a policy.
    pub fn apply(self, policy: &mut Policy) {
        for change in self.0 {
            match change {
                Change::Latest(value) => policy.latest = value,
                Change::WorkQueue(value) => policy.work_queue = value,
                Change::Public(value) => policy.public = value,
                Change::Discard(value) => policy.discard = value,
                Change::MaxMsgs(value) => policy.max_msgs = value,
                Change::MaxBytes(value) => policy.max_bytes = value,
                Change::MaxMsgSize(value) => policy.max_msg_size = value,
                Change::MaxAgeMs(value) => policy.max_age_ms = value,
                Change::MessageTtls(value) => policy.message_ttls = value,
                Change::AckWaitMs(value) => policy.ack_wait_ms = value,
                Change::MaxDeliver(value) => policy.max_deliver = value,
                Change::MaxAckPending(value) => policy.max_ack_pending = value,
                Change::GroupTtlMs(value) => policy.group_ttl_ms = value,
                Change::DedupWindowMs(value) => policy.dedup_window_ms = value,
                Change::DeadLetter(value) => policy.dead_letter = value,
            }
        }
    }
}

impl Change {
    fn read(name: &str, value: &Bound<'_, PyAny>) -> Result<Change> {
        Ok(match name {
            "latest" => Change::Latest(value.extract()?),
            "work_queue" => Change::WorkQueue(value.extract()?),
            "public" => Change::Public(value.extract()?),
            "discard" => Change::Discard(enum_names::discard(&value.extract::<String>()?)?),
            "max_msgs" => Change::MaxMsgs(value.extract()?),
            "max_bytes" => Change::MaxBytes(value.extract()?),
            "max_msg_size" => Change::MaxMsgSize(value.extract()?),
            "max_age_ms" => Change::MaxAgeMs(value.extract()?),
            "message_ttls_ms" => {
                let given: BTreeMap<u8, u64> = value.extract()?;
                Change::MessageTtls(enum_names::message_ttls(&given)?)
            }
            "ack_wait_ms" => Change::AckWaitMs(value.extract()?),
            "max_deliver" => Change::MaxDeliver(value.extract()?),
            "max_ack_pending" => Change::MaxAckPending(value.extract()?),
            "group_ttl_ms" => Change::GroupTtlMs(enum_names::group_ttl(value.extract()?)),
            "dedup_window_ms" => Change::DedupWindowMs(value.extract()?),
            "dead_letter" => {
                Change::DeadLetter(value.extract::<Option<String>>()?.map(String::into_boxed_str))
            }
            _ => return Err(Failure::invalid("policy", format!("{name:?} cannot be changed"))),
        })
    }
}
