//! Changing what a mailbox is like. What it holds beyond lowered limits goes by and by, so that nobody waits for it.

use super::create::check_desc;
use super::indexes::SlotIx;
use super::state::State;
use super::timers::{Purpose, Timer};
use super::{Store, space_for, space_for_unit};
use crate::error::{Error, Result};
use crate::group::ranges;
use crate::log::Space;
use crate::mailbox::{Discard, Mailbox, Policy};
use crate::time::Now;
use crate::wire::mailbox_ops::Updated;
use crate::wire::op::Op;
use crate::wire::stamp::{Stamp, cause};

/// Most surplus messages that go at once: a record that names them fits the smallest segment.
pub(super) const SURPLUS_AT_ONCE: usize = 256;

/// How long surplus messages stay, that cannot go now, until the next try.
const RETRY_MS: u64 = 1000;

/// What changes of a mailbox besides its policy.
#[derive(Debug, Clone, Copy, Default)]
pub struct Changes<'a> {
    /// How long it lives, from its creation on; 0 is for ever.
    pub ttl_ms: Option<u64>,
    /// Free text.
    pub desc: Option<&'a str>,
}

impl Store {
    /// Changes a mailbox. `change` is given the policy as it is; where messages are kept does not change.
    ///
    /// Lowered limits of messages and bytes hold for messages that are there, unless new ones are to be refused: the
    /// oldest go, not all at once if they are many. Limits of age and size hold for those to come.
    pub fn update_mailbox(
        &mut self,
        address: &str,
        changes: Changes<'_>,
        change: impl FnOnce(&mut Policy),
        now: Now,
    ) -> Result<()> {
        self.tick(now);
        let index = self.lookup(address, now)?;
        let not_found = || Error::MailboxNotFound(address.to_owned());
        let mailbox = &self.state.slot(index).ok_or_else(not_found)?.mailbox;
        let old = mailbox.policy();
        let mut policy = old.clone();
        change(&mut policy);
        policy.tier = old.tier;
        policy.check()?;
        let old_desc = mailbox.extras().map_or("", |extras| &extras.desc);
        let desc = changes.desc.unwrap_or(old_desc).to_owned();
        if !mailbox.is_stream() {
            check_desc(&desc)?;
        }
        self.check_dead_letters(address, policy.dead_letter.as_deref())?;
        let expires_ms = match changes.ttl_ms {
            None => mailbox.expires_ms,
            Some(0) => 0,
            Some(ttl_ms) => mailbox.created_ms.saturating_add(ttl_ms),
        };
        if (1..=now.wall_ms).contains(&expires_ms) {
            let problem = "it is over already: it counts from the creation of the mailbox";
            return Err(Error::InvalidField { field: "ttl", problem: problem.to_owned() });
        }
        if (expires_ms, &*desc, &policy) == (mailbox.expires_ms, old_desc, old) {
            return Ok(());
        }
        let moves =
            (policy.max_deliver, &policy.dead_letter) != (old.max_deliver, &old.dead_letter);
        let has_other_window = policy.dedup_window() != old.dedup_window();
        let surplus = surplus(mailbox, &policy);
        let mut encoded = Vec::new();
        policy.encode(&mut encoded);
        let stamp = Stamp { time_ms: now.wall_ms, address };
        let updated = Op::Updated(Updated { stamp, expires_ms, desc: &desc, policy: &encoded });
        let mut ranges = Vec::new();
        ranges::encode_ids(surplus.iter().copied(), &mut ranges);
        let evicted = Op::Removed { stamp: Some(stamp), cause: cause::EVICTED, ranges: &ranges };
        let both = [(index, &updated), (index, &evicted)];
        let unit = match surplus.is_empty() || self.state.in_memory(index) {
            true => &both[..1],
            false => &both[..],
        };
        self.log.reserve(space_for_unit(unit), Space::Store, now.wall_ms)?;
        self.append_unit(unit);
        let old_group_ttl_ms = self.group_ttl_ms(index);
        self.state.update_mailbox(index, expires_ms, &desc, policy);
        for msg_id in surplus {
            self.state.remove_message(index, msg_id);
        }
        let group_ttl_ms = self.group_ttl_ms(index);
        if group_ttl_ms != old_group_ttl_ms {
            self.state.retime_groups(index, group_ttl_ms, now);
        }
        if has_other_window {
            self.state.retime_sent_ids(index);
        }
        let more = moves && self.bury_surplus(index, now);
        if more || self.has_surplus(index) {
            self.let_go_at(index, now.mono_ms);
        }
        // There may be room again, and more to be delivered.
        self.mark_ready(index);
        Ok(())
    }

    /// Mailboxes that were changed before the store was opened go on letting their surplus go. One that is in a checkpoint
    /// does so with the next message: of others a lost record may have brought something back, that rather stays.
    pub(super) fn note_surplus_of_all(&mut self, now: Now) {
        for index in self.state.indexes(0) {
            let Some(slot) = self.state.slot_mut(index) else { continue };
            let is_latest = slot.mailbox.policy().latest;
            let was_changed = slot.mailbox.extras().is_some_and(|extras| extras.is_trimmed);
            if was_changed {
                slot.mailbox.extras_mut().is_trimmed = false;
            }
            if was_changed || is_latest {
                self.note_surplus(index, now);
            }
        }
    }

    /// What a mailbox holds beyond its limits goes from now on.
    pub(super) fn note_surplus(&mut self, index: SlotIx, now: Now) {
        if self.has_surplus(index) {
            self.let_go_at(index, now.mono_ms);
        }
    }

    /// Lets go some of what a mailbox holds beyond its limits.
    pub(super) fn on_surplus(&mut self, index: SlotIx, now: Now) {
        if let Some(slot) = self.state.slot_mut(index) {
            slot.mailbox.extras_mut().is_trimmed = false;
        }
        let evicted = self.evict_surplus(index, now);
        let evicting = evicted > 0 && self.has_surplus(index);
        // Looking for dead letters goes through all that was returned: once, when the rest is done.
        let burying = !evicting && self.bury_surplus(index, now);
        if evicting || burying {
            self.let_go_at(index, now.mono_ms);
        } else if self.has_surplus(index) {
            // Delayed messages count, but have to be due before they go; or there is no space to record it.
            self.let_go_at(index, now.mono_ms.saturating_add(RETRY_MS));
        }
        self.mark_ready(index);
    }

    fn evict_surplus(&mut self, index: SlotIx, now: Now) -> usize {
        let mailbox = &self.state.in_use(index).mailbox;
        let surplus = surplus(mailbox, mailbox.policy());
        if surplus.is_empty() {
            return 0;
        }
        if !self.state.in_memory(index) {
            let address = mailbox.address.clone();
            let stamp = Some(Stamp { time_ms: now.wall_ms, address: &address });
            let mut ranges = Vec::new();
            ranges::encode_ids(surplus.iter().copied(), &mut ranges);
            let op = Op::Removed { stamp, cause: cause::EVICTED, ranges: &ranges };
            if self.log.reserve(space_for(&[&op]), Space::Deliver, now.wall_ms).is_err() {
                return 0;
            }
            self.append(index, 0, &op);
        }
        for &msg_id in &surplus {
            self.state.remove_message(index, msg_id);
        }
        surplus.len()
    }

    /// Moves messages that a lowered `max_deliver` makes dead letters, or that a new mailbox for them has room for; true if there are more.
    fn bury_surplus(&mut self, index: SlotIx, now: Now) -> bool {
        let slot = self.state.in_use(index);
        let (max_deliver, places) = (slot.mailbox.policy().max_deliver, slot.group_places());
        if max_deliver == 0 {
            return false;
        }
        let mut left = SURPLUS_AT_ONCE;
        let mut more = false;
        for at in places {
            if left == 0 {
                return true;
            }
            let buried = self.bury_exhausted(index, at, max_deliver, left, now);
            left -= buried.count;
            more |= buried.more;
        }
        more
    }

    fn has_surplus(&self, index: SlotIx) -> bool {
        let mailbox = &self.state.in_use(index).mailbox;
        let (visible, (messages, bytes)) = (mailbox.visible() as u64, mailbox.limited());
        is_surplus(mailbox.policy(), visible, messages, bytes)
    }

    /// Surplus messages go then; nothing changes if they do already.
    pub(super) fn let_go_at(&mut self, index: SlotIx, at_ms: u64) {
        let number = self.state.number(index);
        if self.state.mark_trimmed(index) {
            let timer = Timer { number, id: 0, slot: index, purpose: Purpose::Surplus };
            self.state.timers.mono.insert(at_ms, timer);
        }
    }
}

impl State {
    /// A mailbox is changed. What it holds stays.
    pub fn update_mailbox(&mut self, index: SlotIx, expires_ms: u64, desc: &str, policy: Policy) {
        self.journal.touch(index);
        let Some(slot) = self.slot_mut(index) else { return };
        let mailbox = &mut slot.mailbox;
        mailbox.expires_ms = expires_ms;
        mailbox.set_policy(policy);
        if mailbox.extras().map_or("", |extras| &extras.desc) != desc {
            mailbox.extras_mut().desc = desc.into();
        }
        if let Some(timer) = slot.expiry.take() {
            self.timers.wall.cancel(timer);
        }
        self.time_mailbox(index);
    }

    /// Surplus messages of a mailbox are to go; false if that was known.
    pub fn mark_trimmed(&mut self, index: SlotIx) -> bool {
        let slot = self.slot_mut(index);
        slot.is_some_and(|s| !std::mem::replace(&mut s.mailbox.extras_mut().is_trimmed, true))
    }

    /// Groups go when they have not been used for `ttl_ms` by now, which was another time until now; 0 is never.
    pub fn retime_groups(&mut self, index: SlotIx, ttl_ms: u64, now: Now) {
        let places = self.slot(index).map(|slot| slot.group_places());
        for at in places.into_iter().flatten() {
            let slot = self.slot_mut(index);
            let Some(group) = slot.and_then(|slot| slot.group_mut(at)) else { continue };
            let (timer, over_ms) = (group.idle.take(), group.used_ms.saturating_add(ttl_ms));
            if let Some(timer) = timer {
                self.timers.mono.cancel(timer);
            }
            if ttl_ms > 0 {
                self.look_at_use(index, at, over_ms.max(now.mono_ms));
            }
        }
    }
}

/// Some of the messages that a mailbox holds and by this policy may not, oldest first.
fn surplus(mailbox: &Mailbox, policy: &Policy) -> Vec<u64> {
    let (mut visible, (mut messages, mut bytes)) = (mailbox.visible() as u64, mailbox.limited());
    let mut surplus = Vec::new();
    for (_, entry) in mailbox.iter_from(0).take(SURPLUS_AT_ONCE) {
        if !is_surplus(policy, visible, messages, bytes) {
            break;
        }
        surplus.push(entry.msg_id);
        (visible, messages) = (visible - 1, messages - 1);
        bytes = bytes.saturating_sub(u64::from(entry.len));
    }
    surplus
}

fn is_surplus(policy: &Policy, visible: u64, messages: u64, bytes: u64) -> bool {
    if policy.latest {
        return visible > 1;
    }
    policy.discard == Discard::Old && policy.is_exceeded(messages, bytes)
}
