//! Things removed at once and counted out later: mailboxes, what purged ones held, and groups. A step at a time, so that
//! nobody waits for a million messages or deliveries.

use super::state::{State, first_delayed, take_delayed, take_message};
use super::state_groups::cancel_timers;

impl State {
    /// Counts out up to `budget` messages of removed mailboxes, and drops as much of removed groups; true if some are left.
    pub fn count_out_removed(&mut self, mut budget: usize) -> bool {
        loop {
            while let Some(group) = self.removed_groups.front_mut() {
                budget -= group.drop_some(budget);
                if budget == 0 {
                    return true;
                }
                self.removed_groups.pop_front();
            }
            let Some(slot) = self.removed_slots.front_mut() else { return false };
            for group in slot.groups_mut() {
                cancel_timers(group, &mut self.timers);
            }
            let mailbox = &mut slot.mailbox;
            while let Some(delay_id) = first_delayed(mailbox) {
                take_delayed(mailbox, delay_id, &mut self.timers, &mut self.live);
                budget = budget.saturating_sub(1);
                if budget == 0 {
                    return true;
                }
            }
            while let Some(msg_id) = mailbox.oldest() {
                take_message(mailbox, msg_id, &mut self.timers, &mut self.live);
                budget = budget.saturating_sub(1);
                if budget == 0 {
                    return true;
                }
            }
            if let Some(ids) = mailbox.sent_ids_mut() {
                let some = ids.len().min(budget);
                ids.forget_before(u64::MAX, some);
                budget -= some;
                if budget == 0 {
                    return true;
                }
            }
            if let Some(mut settled) = self.removed_slots.pop_front() {
                self.removed_groups.extend(settled.take_groups());
            }
        }
    }

    /// Counts out all messages of removed mailboxes.
    pub fn count_out_all_removed(&mut self) {
        while self.count_out_removed(usize::MAX) {}
    }

    /// True when no removed mailbox is still counted in.
    pub fn removed_are_counted_out(&self) -> bool {
        self.removed_slots.is_empty()
    }
}
