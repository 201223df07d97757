//! SEND: a message into a mailbox.

use super::reply::Answer;
use super::{Call, Refusal, address_of, headers};
use crate::store::{Once, Send, Store};
use crate::time::Now;

/// Stores a message, unless one with its id is there already; its `msg_id`, or -1 if it is delayed.
pub(super) fn send(
    store: &mut Store,
    address: &[u8],
    call: &Call<'_>,
    now: Now,
) -> Result<Answer, Refusal> {
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
    let Once { msg_id, duplicate } = match wishes.id {
        "" => Once { msg_id: store.send(address, &send, now)?, duplicate: false },
        id => store.send_once(address, id, &send, now)?,
    };
    let msg_id = msg_id.map_or(-1, |id| i64::try_from(id).unwrap_or(i64::MAX));
    Ok(Answer::Sent { msg_id, duplicate })
}
