//! The configuration of a stream: as it is asked for, with defaults filled in, and what the store makes of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::consumer_config::ConsumerConfig;
use super::duration::duration_text;
use super::envelope;
use super::error::{self, ApiError};
use super::priority;
use crate::mailbox::{Discard as Discards, Policy};
use crate::nats::{self, Overlap, PatternSet};
use crate::store::MAX_CONFIG;
use crate::wire::op::MAX_ID;

const MS: i64 = 1_000_000;
/// How long ids are remembered unless said otherwise, in ns.
const DUPLICATES: i64 = 120_000 * MS;
/// The longest name.
const MAX_NAME: usize = 255;

/// When messages go besides by limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Retention {
    /// They do not.
    #[default]
    Limits,
    /// When all consumers that want them have done with them.
    Interest,
    /// When one consumer has done with them.
    Workqueue,
}

/// What a full stream does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Discard {
    /// The oldest messages go.
    #[default]
    Old,
    /// New ones are refused.
    New,
}

/// Where nats-server would keep messages. mq9 keeps them in its log either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Storage {
    /// In files.
    #[default]
    File,
    /// In memory.
    Memory,
}

/// How nats-server would write files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// As it is.
    #[default]
    None,
    /// Compressed.
    S2,
}

fn is_false(value: &bool) -> bool {
    !value
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// nats-server leaves out what is its default, also where it is said.
fn unless_default<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let said = Option::<String>::deserialize(from)?;
    Ok(said.filter(|said| !matches!(said.as_str(), "" | "default")))
}

/// A stream's configuration.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "the names are JetStream's, and documented there")]
pub struct StreamConfig {
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    pub subjects: Vec<String>,
    pub retention: Retention,
    pub max_consumers: i64,
    pub max_msgs: i64,
    pub max_bytes: i64,
    pub max_age: i64,
    pub max_msgs_per_subject: i64,
    pub max_msg_size: i64,
    pub discard: Discard,
    pub storage: Storage,
    pub num_replicas: i64,
    #[serde(skip_serializing_if = "is_false")]
    pub no_ack: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub discard_new_per_subject: bool,
    pub duplicate_window: i64,
    pub compression: Compression,
    #[serde(skip_serializing_if = "is_zero")]
    pub first_seq: u64,
    pub allow_direct: bool,
    pub mirror_direct: bool,
    pub sealed: bool,
    pub deny_delete: bool,
    pub deny_purge: bool,
    pub allow_rollup_hdrs: bool,
    pub consumer_limits: ConsumerLimits,
    pub allow_msg_ttl: bool,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sources: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_transform: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub republish: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "is_zero")]
    pub subject_delete_marker_ttl: u64,
    #[serde(skip_serializing_if = "is_false")]
    pub allow_msg_counter: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub allow_atomic: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub allow_batched: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub allow_msg_schedules: bool,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "unless_default")]
    pub persist_mode: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub template_owner: String,
}

/// What its consumers may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConsumerLimits {
    /// How long one that is not used stays, in ns.
    #[serde(skip_serializing_if = "ConsumerLimits::is_none")]
    pub inactive_threshold: i64,
    /// Most messages that are out.
    #[serde(skip_serializing_if = "ConsumerLimits::is_none")]
    pub max_ack_pending: i64,
}

impl ConsumerLimits {
    fn is_none(value: &i64) -> bool {
        *value == 0
    }

    /// A consumer has what it does not ask for from its stream, and may not ask for more.
    pub(super) fn apply(self, mut consumer: ConsumerConfig) -> Result<ConsumerConfig, ApiError> {
        if self.max_ack_pending > 0 && consumer.max_ack_pending == 0 {
            consumer.max_ack_pending = self.max_ack_pending;
        }
        if self.inactive_threshold > 0 && consumer.inactive_threshold <= 0 {
            consumer.inactive_threshold = self.inactive_threshold;
        }
        if exceeds(self.max_ack_pending, consumer.max_ack_pending) {
            let most = self.max_ack_pending;
            let description =
                format!("consumer max ack pending exceeds system limit of {most}").into();
            return Err(ApiError { code: 400, err_code: 10121, description });
        }
        if exceeds(self.inactive_threshold, consumer.inactive_threshold) {
            let most = duration_text(self.inactive_threshold as u64 / MS as u64);
            let description =
                format!("consumer inactive threshold exceeds system limit of {most}").into();
            return Err(ApiError { code: 400, err_code: 10153, description });
        }
        Ok(consumer)
    }

    /// Whether a consumer has more than its stream would allow.
    pub(super) fn are_exceeded(self, consumer: &ConsumerConfig) -> bool {
        exceeds(self.max_ack_pending, consumer.max_ack_pending)
            || exceeds(self.inactive_threshold, consumer.inactive_threshold)
    }
}

fn exceeds(most: i64, asked: i64) -> bool {
    most > 0 && asked > most
}

impl StreamConfig {
    /// The configuration in the body of a request.
    pub fn parse(body: &[u8]) -> Result<StreamConfig, ApiError> {
        if body.is_empty() {
            return Ok(StreamConfig::default());
        }
        serde_json::from_slice(body).map_err(|error| ApiError::json(&error))
    }

    /// The configuration as the store has it.
    pub fn stored(text: &str) -> Option<StreamConfig> {
        serde_json::from_str(text).ok()
    }

    /// As the store keeps it and clients see it.
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Checks it and fills in what is left to defaults.
    pub fn settle(mut self) -> Result<StreamConfig, ApiError> {
        let refuse = |why: &'static str| Err(ApiError::stream_config(why));
        if self.name.contains(['/', '\\']) {
            return Err(error::STREAM_PATH);
        }
        if self.name.len() > MAX_NAME {
            return refuse("stream name is too long, maximum allowed is 255");
        }
        if self.name.contains(['.', '*', '>', ' ', '\t', '\r', '\n']) {
            return Err(error::STREAM_MISMATCH);
        }
        self.check_unserved()?;
        envelope::check_option(&self.metadata)?;
        priority::check_option(&self.metadata, self.retention)?;
        if self.text().len() > MAX_CONFIG {
            return refuse("the configuration is longer than 60000 bytes");
        }
        if self.sealed {
            return refuse("stream configuration for create can not be sealed");
        }
        for limit in [
            &mut self.max_consumers,
            &mut self.max_msgs,
            &mut self.max_bytes,
            &mut self.max_msgs_per_subject,
            &mut self.max_msg_size,
        ] {
            *limit = if *limit <= 0 { -1 } else { *limit };
        }
        if self.num_replicas < 0 {
            return refuse("replicas count cannot be negative");
        }
        self.num_replicas = self.num_replicas.max(1);
        if self.num_replicas > 5 {
            return refuse("maximum replicas is 5");
        }
        if self.num_replicas > 1 {
            return Err(error::REPLICAS);
        }
        self.check_times()?;
        if self.subjects.is_empty() {
            self.subjects.push(self.name.clone());
        }
        self.check_subjects()?;
        Ok(self)
    }

    fn check_times(&mut self) -> Result<(), ApiError> {
        let refuse = |why: &'static str| Err(ApiError::stream_config(why));
        if self.max_age < 0 {
            return refuse("max age can not be negative");
        }
        if self.max_age != 0 && self.max_age < 100 * MS {
            return refuse("max age needs to be >= 100ms");
        }
        if self.duplicate_window == 0 {
            self.duplicate_window =
                if self.max_age > 0 { self.max_age.min(DUPLICATES) } else { DUPLICATES };
        }
        if self.duplicate_window < 0 {
            return refuse("duplicates window can not be negative");
        }
        if self.max_age > 0 && self.duplicate_window > self.max_age {
            return refuse("duplicates window can not be larger then max age");
        }
        if self.duplicate_window < 100 * MS {
            return refuse("duplicates window needs to be >= 100ms");
        }
        Ok(())
    }

    /// What mq9 does not do is refused: a stream that did it only in name would lose messages.
    fn check_unserved(&self) -> Result<(), ApiError> {
        let unserved = [
            (self.mirror.is_some(), "stream mirrors are not supported"),
            (self.sources.is_some(), "stream sources are not supported"),
            (self.subject_transform.is_some(), "subject transforms are not supported"),
            (self.republish.is_some(), "republish is not supported"),
            (self.allow_msg_ttl, "per-message TTLs are not supported"),
            (self.allow_rollup_hdrs, "rollups are not supported"),
            (self.subject_delete_marker_ttl > 0, "subject delete markers are not supported"),
            (self.allow_msg_counter, "message counters are not supported"),
            (self.allow_atomic || self.allow_batched, "batch publish is not supported"),
            (self.allow_msg_schedules, "message schedules are not supported"),
            (self.discard_new_per_subject, "discard new per subject is not supported"),
        ];
        match unserved.into_iter().find(|(asked, _)| *asked) {
            Some((_, why)) => Err(ApiError::stream_config(why)),
            None => Ok(()),
        }
    }

    fn check_subjects(&self) -> Result<(), ApiError> {
        for subject in &self.subjects {
            let bytes = subject.as_bytes();
            let has_space = subject.contains([' ', '\t', '\r', '\n', '\0', '\u{c}']);
            if subject.is_empty() || has_space || !nats::is_valid(bytes) {
                return Err(ApiError::stream_config("invalid subject"));
            }
            if subject == ">" && !self.no_ack {
                let why = "capturing all subjects requires no-ack to be true";
                return Err(ApiError::stream_config(why));
            }
            if subject != ">" {
                self.check_own_subjects(subject)?;
            }
        }
        let all = self.subjects.iter().map(String::as_str).filter(|subject| *subject != ">");
        match PatternSet::of(all) {
            Err((subject, Overlap::With(other))) => {
                let why = format!("subject {other:?} overlaps with {subject:?}");
                Err(ApiError::stream_config(why))
            }
            Err(_) => Err(error::TOO_MANY_SUBJECTS),
            Ok(_) => Ok(()),
        }
    }

    /// Refuses subjects of the broker itself.
    fn check_own_subjects(&self, subject: &str) -> Result<(), ApiError> {
        let overlaps = |own: &str| nats::overlaps(subject.as_bytes(), own.as_bytes());
        let is_event = nats::covers(b"$JS.EVENT.>", subject.as_bytes());
        if (overlaps("$JS.>") && !is_event && !self.no_ack) || overlaps("$JSC.>") {
            let why = "subjects that overlap with jetstream api require no-ack to be true";
            return Err(ApiError::stream_config(why));
        }
        let is_account = nats::covers(b"$SYS.ACCOUNT.>", subject.as_bytes());
        if overlaps("$SYS.>") && !is_account && !self.no_ack {
            let why = "subjects that overlap with system api require no-ack to be true";
            return Err(ApiError::stream_config(why));
        }
        if overlaps("$mq9.>") && subject.starts_with('$') {
            return Err(ApiError::stream_config("subjects of mq9 itself can not be captured"));
        }
        Ok(())
    }

    /// What the store does with messages.
    pub fn policy(&self) -> Policy {
        let limit = |value: i64| u64::try_from(value).unwrap_or(0);
        Policy {
            work_queue: self.retention == Retention::Workqueue,
            interest: self.retention == Retention::Interest,
            discard: match self.discard {
                Discard::Old => Discards::Old,
                Discard::New => Discards::New,
            },
            max_msgs: limit(self.max_msgs),
            max_bytes: limit(self.max_bytes),
            max_msg_size: limit(self.max_msg_size),
            max_age_ms: limit(self.max_age).div_ceil(MS as u64),
            max_per_subject: limit(self.max_msgs_per_subject),
            dedup_window_ms: limit(self.duplicate_window).div_ceil(MS as u64),
            first_id: self.first_seq.saturating_sub(1).min(MAX_ID / 2),
            ..Policy::default()
        }
    }
}
