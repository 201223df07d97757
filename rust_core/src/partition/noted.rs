//! A message that is stored as if a client had sent it, in one unit with a note that it was.
//!
//! Owns how its subject is understood: a mailbox's, or one of a stream.

use crate::front::Call;
use crate::jetstream;
use crate::protocol::{self, Command, Encoding, Refusal};
use crate::store::{Note, Store};
use crate::time::Now;

/// Stores what `call` sends, and notes it.
pub fn send_noted(
    store: &mut Store,
    call: &Call<'_>,
    note: &Note<'_>,
    now: Now,
) -> Result<(), Refusal> {
    match protocol::parse(call.subject, call.headers, call.payload, Encoding::Auto) {
        Some(Ok(Command::Send(command))) => {
            let (address, id) = (command.address, command.id());
            store.send_noted(address, id, &command.send(), note, now)?;
        }
        Some(Ok(_)) => return Err(Refusal::invalid("the subject is none that messages go to")),
        Some(Err((_, refusal))) => return Err(refusal),
        None => {
            let published = jetstream::publish_noted(store, call, note, now);
            published.map_err(|error| Refusal::invalid(error.description))?;
        }
    }
    Ok(())
}
