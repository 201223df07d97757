//! The configuration of a consumer: as it is asked for, with defaults filled in, and what the store makes of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::dead_letters;
use super::error::{self, ApiError};
use super::stream_config::ConsumerLimits;
use crate::consumer::{AckPolicy, ConsumerPolicy, MAX_TEXT};
use crate::nats::{self, Overlap, PatternSet};
use crate::store::MAX_CONFIG;

const MS: i64 = 1_000_000;
const ACK_WAIT: i64 = 30_000 * MS;
const INACTIVE: i64 = 5_000 * MS;
const MAX_ACK_PENDING: i64 = 1000;
const MAX_WAITING: i64 = 512;

/// What a consumer must acknowledge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ack {
    /// Nothing.
    #[default]
    None,
    /// A message, and all before it with it.
    All,
    /// Each message.
    Explicit,
    /// What nats-server acknowledges to itself between streams: mq9 has none of that.
    #[serde(rename = "flow_control")]
    FlowControl,
}

/// Where a consumer begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deliver {
    /// With the first message.
    #[default]
    All,
    /// With the last one.
    Last,
    /// With the next one.
    New,
    /// With a number.
    ByStartSequence,
    /// With a time.
    ByStartTime,
    /// With the last one of each subject.
    LastPerSubject,
}

/// How fast messages are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Replay {
    /// At once.
    #[default]
    Instant,
    /// As they came.
    Original,
}

fn is_false(value: &bool) -> bool {
    !value
}

fn is_zero(value: &i64) -> bool {
    *value == 0
}

/// A consumer's configuration.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "the names are JetStream's, and documented there")]
pub struct ConsumerConfig {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub durable_name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    pub deliver_policy: Deliver,
    #[serde(skip_serializing_if = "is_zero")]
    pub opt_start_seq: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opt_start_time: Option<String>,
    pub ack_policy: Ack,
    #[serde(skip_serializing_if = "is_zero")]
    pub ack_wait: i64,
    pub max_deliver: i64,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_empty")]
    pub backoff: Vec<i64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub filter_subject: String,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_empty")]
    pub filter_subjects: Vec<String>,
    pub replay_policy: Replay,
    #[serde(skip_serializing_if = "is_zero")]
    pub rate_limit_bps: i64,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sample_freq: String,
    #[serde(skip_serializing_if = "is_zero")]
    pub max_waiting: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pub max_ack_pending: i64,
    #[serde(skip_serializing_if = "is_false")]
    pub flow_control: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub headers_only: bool,
    #[serde(skip_serializing_if = "is_zero")]
    pub max_batch: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pub max_expires: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pub max_bytes: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pub idle_heartbeat: i64,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub deliver_subject: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub deliver_group: String,
    #[serde(skip_serializing_if = "is_zero")]
    pub inactive_threshold: i64,
    pub num_replicas: i64,
    #[serde(skip_serializing_if = "is_false")]
    pub mem_storage: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub direct: bool,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "or_empty")]
    pub metadata: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_until: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_empty")]
    pub priority_groups: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub priority_policy: String,
    #[serde(skip_serializing_if = "is_zero")]
    pub priority_timeout: i64,
}

/// Some clients say `null` for what has nothing in it.
fn or_empty<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}

impl ConsumerConfig {
    /// The configuration as the store has it.
    pub fn stored(text: &str) -> Option<ConsumerConfig> {
        serde_json::from_str(text).ok()
    }

    /// As the store keeps it and clients see it.
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// For a client that wants to be refused where something would be changed: checks that nothing is, before limits of the
    /// stream are applied.
    pub(super) fn check_pedantic(&self, limits: ConsumerLimits) -> Result<(), ApiError> {
        let ack_wait = match self.ack_wait {
            0 if self.ack_policy != Ack::None => ACK_WAIT,
            asked => asked,
        };
        let changed = [
            (self.max_deliver < -1, "max_deliver must be set to -1"),
            (self.max_waiting < 0, "max_waiting must not be negative"),
            (self.max_ack_pending < -1, "max_ack_pending must be set to -1"),
            (self.max_batch < 0, "max_batch must not be negative"),
            (self.max_expires < 0, "max_expires must not be negative"),
            (self.max_bytes < 0, "max_bytes must not be negative"),
            (self.idle_heartbeat < 0, "idle_heartbeat must not be negative"),
            (self.inactive_threshold < 0, "inactive_threshold must not be negative"),
            (self.priority_timeout < 0, "priority_timeout must not be negative"),
            (
                self.backoff.first().is_some_and(|first| *first != ack_wait),
                "first backoff value has to equal batch AckWait",
            ),
            (
                self.max_ack_pending == 0 && limits.max_ack_pending > 0,
                "max_ack_pending must be set if it's configured in stream limits",
            ),
            (
                self.inactive_threshold == 0 && limits.inactive_threshold > 0,
                "inactive_threshold must be set if it's configured in stream limits",
            ),
        ];
        match changed.into_iter().find(|(changed, _)| *changed) {
            Some((_, why)) => {
                let description = format!("pedantic mode: {why}").into();
                Err(ApiError { code: 400, err_code: 10157, description })
            }
            None => Ok(()),
        }
    }

    /// Checks it and fills in what is left to defaults. A consumer of a work queue must acknowledge each message.
    pub fn settle(mut self, is_work_queue: bool) -> Result<ConsumerConfig, ApiError> {
        let bad = |why: &'static str| Err(ApiError::consumer(400, 10012, why));
        for limit in [
            &mut self.max_waiting,
            &mut self.max_batch,
            &mut self.max_expires,
            &mut self.max_bytes,
            &mut self.idle_heartbeat,
            &mut self.inactive_threshold,
            &mut self.priority_timeout,
        ] {
            *limit = (*limit).max(0);
        }
        if self.ack_policy == Ack::FlowControl {
            return bad("the acknowledgement policy flow_control is not supported");
        }
        if self.ack_wait < 0 {
            return Err(ApiError::consumer(400, 10183, "consumer ack wait needs to be positive"));
        }
        self.check_push()?;
        if is_work_queue && self.ack_policy == Ack::None {
            let why = "consumer in pull mode requires explicit ack policy on workqueue stream";
            return Err(ApiError::consumer(400, 10084, why));
        }
        dead_letters::check_option(&self.metadata, self.ack_policy)?;
        if self.replay_policy == Replay::Original {
            return bad("replay at the original pace is not supported");
        }
        if !self.priority_groups.is_empty() || !self.priority_policy.is_empty() {
            return bad("priority groups are not supported");
        }
        // The `nats` command line writes the zero time where nobody asks for a pause.
        self.pause_until = self.pause_until.filter(|at| !at.starts_with("0001-01-01T00:00:00"));
        if self.pause_until.is_some() {
            return bad("paused consumers are not supported");
        }
        if self.num_replicas > 1 {
            return Err(error::REPLICAS);
        }
        if self.text().len() > MAX_CONFIG {
            return bad("the configuration is longer than 60000 bytes");
        }
        self.fill_in();
        if self.max_deliver > 0 && self.backoff.len() as i64 > self.max_deliver {
            let why = "max deliver is required to be > length of backoff values";
            return Err(ApiError::consumer(400, 10116, why));
        }
        self.check_start()?;
        self.check_filters()?;
        Ok(self)
    }

    fn fill_in(&mut self) {
        self.max_deliver = if self.max_deliver <= 0 { -1 } else { self.max_deliver };
        self.max_waiting = if self.max_waiting <= 0 { MAX_WAITING } else { self.max_waiting };
        if self.ack_policy != Ack::None {
            if self.ack_wait == 0 {
                self.ack_wait = ACK_WAIT;
            }
            self.max_ack_pending = match self.max_ack_pending {
                0 => MAX_ACK_PENDING,
                less if less < 0 => -1,
                more => more,
            };
        }
        if let Some(first) = self.backoff.first() {
            self.ack_wait = *first;
        }
        if self.durable_name.is_empty() && self.inactive_threshold == 0 {
            self.inactive_threshold = INACTIVE;
        }
    }

    fn check_push(&self) -> Result<(), ApiError> {
        if !self.deliver_subject.is_empty() {
            if self.max_waiting != 0 {
                let why = "consumer in push mode can not set max waiting";
                return Err(ApiError::consumer(400, 10080, why));
            }
            return Err(ApiError::consumer(400, 10012, "push consumers are not supported"));
        }
        let only_push = [
            (self.rate_limit_bps != 0, 10086, "consumer in pull mode can not have rate limit set"),
            (
                self.idle_heartbeat != 0,
                10088,
                "consumer idle heartbeat requires a push based consumer",
            ),
            (self.flow_control, 10089, "consumer flow control requires a push based consumer"),
        ];
        match only_push.into_iter().find(|(asked, _, _)| *asked) {
            Some((_, code, why)) => Err(ApiError::consumer(400, code, why)),
            None => Ok(()),
        }
    }

    fn check_start(&self) -> Result<(), ApiError> {
        let kind = match self.deliver_policy {
            Deliver::All => "all",
            Deliver::Last => "last",
            Deliver::New => "new",
            Deliver::ByStartSequence => "by start sequence",
            Deliver::ByStartTime => "by start time",
            Deliver::LastPerSubject => "last per subject",
        };
        let (seq, time) = (self.opt_start_seq != 0, self.opt_start_time.is_some());
        let problem = match self.deliver_policy {
            Deliver::ByStartSequence if !seq => Some("optional start sequence is not set"),
            Deliver::ByStartTime if !time => Some("optional start time is not set"),
            Deliver::LastPerSubject if self.filters().is_empty() => {
                Some("optional filter subject is not set")
            }
            Deliver::ByStartSequence if time => Some("optional start time is also set"),
            Deliver::ByStartTime if seq => Some("optional start sequence is also set"),
            Deliver::ByStartSequence | Deliver::ByStartTime => None,
            _ if seq => Some("optional start sequence is also set"),
            _ if time => Some("optional start time is also set"),
            _ => None,
        };
        match problem {
            Some(problem) => {
                let why = format!("consumer delivery policy is deliver {kind}, but {problem}");
                Err(ApiError { code: 400, err_code: 10094, description: why.into() })
            }
            None => Ok(()),
        }
    }

    fn check_filters(&self) -> Result<(), ApiError> {
        if !self.filter_subject.is_empty() && !self.filter_subjects.is_empty() {
            let why = "consumer cannot have both FilterSubject and FilterSubjects specified";
            return Err(ApiError::consumer(400, 10136, why));
        }
        let all = &self.filter_subjects;
        if all.iter().any(String::is_empty) {
            let why = "consumer filter in FilterSubjects cannot be empty";
            return Err(ApiError::consumer(400, 10139, why));
        }
        match PatternSet::of(all.iter().map(String::as_str)) {
            Ok(_) => {}
            Err((_, Overlap::TooMany)) => return Err(error::TOO_MANY_SUBJECTS),
            Err(_) => {
                let why = "consumer subject filters cannot overlap";
                return Err(ApiError::consumer(400, 10138, why));
            }
        }
        if self.filters().iter().any(|filter| filter.len() > MAX_TEXT) {
            let why = "consumer filter subject is longer than 255 bytes";
            return Err(ApiError::consumer(400, 10093, why));
        }
        if self.filters().iter().any(|filter| !nats::is_valid(filter.as_bytes())) {
            let why = "consumer filter subject is not a valid subject";
            return Err(ApiError::consumer(400, 10093, why));
        }
        Ok(())
    }

    /// Subjects of the messages it wants; empty for all.
    pub fn filters(&self) -> Vec<&str> {
        match self.filter_subject.as_str() {
            "" => self.filter_subjects.iter().map(String::as_str).collect(),
            one => vec![one],
        }
    }

    /// What the store does with messages.
    pub fn policy(&self) -> ConsumerPolicy {
        let limit = |value: i64| u64::try_from(value).unwrap_or(0);
        let small = |value: i64| u32::try_from(value.max(0)).unwrap_or(u32::MAX);
        let ms = |value: i64| limit(value).div_ceil(MS as u64);
        ConsumerPolicy {
            ack: match self.ack_policy {
                Ack::None => AckPolicy::None,
                Ack::All => AckPolicy::All,
                // The last one is refused before.
                Ack::Explicit | Ack::FlowControl => AckPolicy::Explicit,
            },
            ack_wait_ms: ms(self.ack_wait),
            backoff_ms: self.backoff.iter().map(|value| ms(*value)).collect(),
            max_deliver: small(self.max_deliver),
            max_ack_pending: small(self.max_ack_pending),
            max_waiting: small(self.max_waiting),
            max_batch: limit(self.max_batch),
            max_expires_ms: ms(self.max_expires),
            max_bytes: limit(self.max_bytes),
            inactive_ms: ms(self.inactive_threshold),
            headers_only: self.headers_only,
            push: false,
            filters: self.filters().into_iter().map(Into::into).collect(),
            dead_letter_prefix: dead_letters::prefix(&self.metadata).map(Into::into),
        }
    }
}
