//! Priorities of a work queue: which streams have them, and how urgent a message is.

use std::collections::BTreeMap;

use super::error::{self, ApiError};
use super::stream_config::Retention;
use crate::mailbox::Level;
use crate::protocol::priority_problem;

/// The option of a stream whose messages are given by their priority.
const OPTION: &str = "mq9.priority";
/// The header that says it. Case does not count.
pub(super) const HEADER: &str = "mq9-priority";

/// Whether a stream has priorities.
pub(super) fn is_asked(metadata: &BTreeMap<String, String>) -> bool {
    !metadata.is_empty() && metadata.contains_key(OPTION)
}

/// Only a work queue may have them: elsewhere a consumer's place is one number.
pub(super) fn check_option(
    metadata: &BTreeMap<String, String>,
    retention: Retention,
) -> Result<(), ApiError> {
    match metadata.get(OPTION) {
        None => Ok(()),
        Some(asked) if asked != "true" => {
            Err(ApiError::stream_config("mq9.priority must be true, or left out"))
        }
        Some(_) if retention != Retention::Workqueue => {
            let why = "mq9.priority needs retention workqueue: other streams are read in order";
            Err(ApiError::stream_config(why))
        }
        Some(_) => Ok(()),
    }
}

/// How urgent a message is, as its header says it.
pub(super) fn level(said: &[u8]) -> Result<Level, ApiError> {
    let said = String::from_utf8_lossy(said);
    Level::named(&said).ok_or_else(|| ApiError {
        description: priority_problem(HEADER, &said).into(),
        ..error::BAD_REQUEST
    })
}
