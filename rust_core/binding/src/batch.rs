//! Several messages at once.

use mq9_core::error::Error;
use mq9_core::store::Store;
use mq9_core::time::Now;

use crate::errors::{Failure, Result};

/// Stores messages in order. If one is refused, those before it stay and those after it are not
/// tried.
pub fn append_many(
    store: &mut Store,
    address: &str,
    messages: &[mq9_core::store::Send<'_>],
    now: Now,
) -> Result<Vec<i64>> {
    let refused = |index, stored, cause| match cause {
        // Not the fault of one message.
        Error::MailboxNotFound(_) if index == 0 => Failure::Refused(cause),
        _ => Failure::InBatch { index, stored, cause },
    };
    for (index, message) in messages.iter().enumerate() {
        let checked = store.check_send(address, message, now);
        checked.map_err(|cause| refused(index, Vec::new(), cause))?;
    }
    let mut stored = Vec::with_capacity(messages.len());
    for (index, message) in messages.iter().enumerate() {
        match store.send(address, message, now) {
            Ok(msg_id) => stored.push(number_of(msg_id)),
            Err(cause) => return Err(refused(index, stored, cause)),
        }
    }
    Ok(stored)
}

/// A `msg_id` as Python sees it: -1 for a message that has none yet, because it is delayed.
pub fn number_of(msg_id: Option<u64>) -> i64 {
    msg_id.map_or(-1, |id| i64::try_from(id).unwrap_or(i64::MAX))
}
