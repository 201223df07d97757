//! Refusals in nats-server's codes and words: clients branch on them.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::error::Error;

/// Why a request was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// As in HTTP.
    pub code: u16,
    /// nats-server's own number.
    pub err_code: u32,
    /// In words.
    pub description: Cow<'static, str>,
}

pub(super) const fn known(code: u16, err_code: u32, description: &'static str) -> ApiError {
    ApiError { code, err_code, description: Cow::Borrowed(description) }
}

/// It cannot be understood.
pub const BAD_REQUEST: ApiError = known(400, 10003, "bad request");
/// There is no such message.
pub const NO_MESSAGE: ApiError = known(404, 10037, "no message found");
/// There is no such stream.
pub const STREAM_NOT_FOUND: ApiError = known(404, 10059, "stream not found");
/// The stream is there, and another.
pub const STREAM_IN_USE: ApiError =
    known(400, 10058, "stream name already in use with a different configuration");
/// Two names for one stream.
pub const STREAM_MISMATCH: ApiError =
    known(400, 10056, "stream name in subject does not match request");
/// The name would not be a file's.
pub const STREAM_PATH: ApiError = known(400, 10128, "Stream name can not contain path separators");
/// Another stream has messages of some of these subjects.
pub const SUBJECT_OVERLAP: ApiError = known(400, 10065, "subjects overlap with an existing stream");
/// There is one broker.
pub const REPLICAS: ApiError =
    known(500, 10074, "replicas > 1 not supported in non-clustered mode");
/// A number of the name of a stream is wrong.
pub const WRONG_STREAM: ApiError = known(400, 10060, "expected stream does not match");
/// The message is larger than the stream allows.
pub const TOO_LARGE: ApiError = known(400, 10054, "message size exceeds maximum allowed");
/// The id of the message is longer than can be remembered.
pub const ID_TOO_LONG: ApiError = known(400, 10003, "Nats-Msg-Id is longer than 255 bytes");
/// More is asked for than is served.
pub const API_LEVEL: ApiError = known(412, 10185, "JetStream minimum api level required");
/// Whether some of the subjects overlap would take too long to find out.
pub const TOO_MANY_SUBJECTS: ApiError =
    known(400, 10003, "too many subjects with wildcards to be compared with each other");
/// To find the last message of a pattern would hold others up.
pub const TOO_MANY_TO_FIND: ApiError =
    known(400, 10003, "too many subjects to find the last one that the expected pattern matches");
/// A subject is named of which nothing is expected.
pub const NO_SUBJECT_SEQUENCE: ApiError =
    known(400, 10193, "missing sequence for expected last sequence per subject");
/// There is no such consumer.
pub const CONSUMER_NOT_FOUND: ApiError = known(404, 10014, "consumer not found");
/// Messages of a stream have no times of their own.
pub const NO_TTLS: ApiError = known(400, 10166, "per-message TTL is disabled");
/// No message stands for all before it.
pub const NO_ROLLUPS: ApiError = known(500, 10111, "rollup not permitted");
/// Messages are no numbers to be added up.
pub const NO_COUNTERS: ApiError = known(400, 10168, "message counters is disabled");
/// Messages are stored one by one.
pub const NO_BATCHES: ApiError = known(400, 10174, "atomic publish is disabled");
/// Others would take it for the broker's word.
pub const OWN_HEADER: ApiError =
    known(400, 10003, "mq9-dead-* and mq9-due-time are headers that only the broker writes");
/// There is one broker, or mq9's own cluster.
pub const NO_CLUSTER: ApiError = known(503, 10010, "JetStream clustering support required");
/// Messages of the stream stay.
pub const DELETE_DENIED: ApiError = known(500, 10057, "message delete not permitted");
/// Messages of the stream stay.
pub const PURGE_DENIED: ApiError = known(500, 10110, "stream purge not permitted");

impl ApiError {
    /// The text is not JSON of the form that is asked for.
    pub fn json(error: &serde_json::Error) -> ApiError {
        ApiError {
            code: 400,
            err_code: 10025,
            description: format!("invalid JSON: {error}").into(),
        }
    }

    /// A stream cannot be like this.
    pub fn stream_config(why: impl Into<Cow<'static, str>>) -> ApiError {
        ApiError { code: 500, err_code: 10052, description: why.into() }
    }

    /// A consumer cannot be like this.
    pub fn consumer(code: u16, err_code: u32, why: &'static str) -> ApiError {
        known(code, err_code, why)
    }

    /// The store could not do it.
    pub fn store(why: impl Into<Cow<'static, str>>) -> ApiError {
        ApiError { code: 503, err_code: 10077, description: why.into() }
    }

    /// As it is in a reply.
    pub fn value(&self) -> Value {
        let ApiError { code, err_code, description } = self;
        json!({"code": code, "err_code": err_code, "description": description})
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> ApiError {
        let text = error.to_string();
        match error {
            Error::QuotaExceeded { setting, .. } if setting.starts_with("max_mailboxes") => {
                let description = format!("maximum number of streams reached: {text}").into();
                ApiError { code: 400, err_code: 10027, description }
            }
            Error::QuotaExceeded { .. } => {
                let description =
                    format!("insufficient storage resources available: {text}").into();
                ApiError { code: 500, err_code: 10047, description }
            }
            _ => ApiError::store(text),
        }
    }
}
