//! SEND: a message into a mailbox.

use super::{Call, Refusal, address_of, headers};
use crate::store::{Send, Store};
use crate::time::Now;

/// Stores a message; its `msg_id`, or -1 if it is delayed.
pub(super) fn send(
    store: &mut Store,
    address: &[u8],
    call: &Call<'_>,
    now: Now,
) -> Result<i64, Refusal> {
    let address = address_of(address)?;
    let wishes = headers::read(call.headers)?;
    let send = Send {
        level: wishes.level,
        key: wishes.key,
        tags: &wishes.tags,
        headers: &wishes.others,
        payload: call.payload,
        delay_ms: wishes.delay_ms,
        ttl_ms: wishes.ttl_ms,
    };
    let msg_id = store.send(address, &send, now)?;
    Ok(msg_id.map_or(-1, |id| i64::try_from(id).unwrap_or(i64::MAX)))
}
