//! The `msg_id`s that a mailbox may still give out.

use super::indexes::SlotIx;
use super::state::State;

impl State {
    /// Messages to come get no `msg_id` below `below`.
    pub fn skip_ids(&mut self, index: SlotIx, below: u64) {
        let slot = self.slots.in_use_mut(index);
        slot.mailbox.next_id = slot.mailbox.next_id.max(below);
    }

    /// Ids that may have been given out to messages in memory are passed over, once all is replayed.
    pub fn skip_reserved_ids(&mut self) {
        for slot in self.slots.iter_mut() {
            let mailbox = &mut slot.mailbox;
            let reserved = mailbox.extras().map_or(0, |extras| extras.reserved_ids);
            mailbox.next_id = mailbox.next_id.max(reserved);
        }
    }

    /// `msg_id`s below `below` are not given out again.
    pub fn reserve_ids(&mut self, index: SlotIx, below: u64) {
        self.slots.in_use_mut(index).mailbox.extras_mut().reserved_ids = below;
    }
}
