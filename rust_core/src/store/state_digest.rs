//! A digest of what a store holds, wherever its records lie: equal on all nodes at the same place of their stream.

use xxhash_rust::xxh3::xxh3_128;

use super::Store;
use super::slot::Slot;
use crate::group::Member;
use crate::mailbox::Tier;
use crate::wire::bytes::Put;
use crate::wire::op::MemberName;

impl Store {
    /// Of all mailboxes and groups, as they would be after a restart. Reads everything: for checks, not for every day.
    pub fn state_digest(&self) -> u128 {
        let mut bytes = Vec::new();
        let digests = self.state.slots().map(|(_, slot)| {
            bytes.clear();
            describe(slot, &mut bytes);
            xxh3_128(&bytes)
        });
        // In any order: slots are given out by each node as it likes.
        digests.fold(0, u128::wrapping_add)
    }
}

fn describe(slot: &Slot, out: &mut Vec<u8>) {
    let mailbox = &slot.mailbox;
    out.put_u64(mailbox.number);
    out.put_short(mailbox.address.as_bytes());
    out.put_u64(mailbox.created_ms);
    out.put_u64(mailbox.expires_ms);
    let mut policy = Vec::new();
    mailbox.policy().encode(&mut policy);
    out.put_medium(&policy);
    let empty = Default::default();
    let extras = mailbox.extras().unwrap_or(&empty);
    out.put_medium(extras.desc.as_bytes());
    out.put_u64(extras.reserved_ids);
    // What is in memory only ends with the process.
    if mailbox.policy().tier == Tier::Memory {
        return;
    }
    out.put_u64(mailbox.next_id);
    out.put_u64(extras.next_delay);
    for (level, entry) in mailbox.iter_from(0) {
        out.put_u8(level.number());
        out.put_u64(entry.msg_id);
        out.put_u64(entry.create_ms);
        out.put_u8(entry.flags);
    }
    for (msg_id, key) in extras.keyed.iter() {
        out.put_u64(msg_id);
        out.put_medium(key.as_bytes());
    }
    for (msg_id, (expires_ms, _)) in extras.expiries.iter() {
        out.put_u64(msg_id);
        out.put_u64(*expires_ms);
    }
    for (delay_id, delayed) in extras.delayed.iter() {
        out.put_u64(delay_id);
        out.put_u64(delayed.due_ms);
        out.put_u64(delayed.expires_ms);
    }
    describe_groups(slot, out);
}

fn describe_groups(slot: &Slot, out: &mut Vec<u8>) {
    let mut groups: Vec<_> = slot.groups().collect();
    groups.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    for group in groups {
        out.put_short(group.name.as_bytes());
        for number in group.group.start().iter().chain(group.group.cursors()) {
            out.put_u64(*number);
        }
        for pending in group.group.all_pending() {
            out.put_u64(pending.delivered.msg_id);
            out.put_u32(pending.delivered.count);
            let member = match pending.member {
                Some(Member::Named(name)) => MemberName::Named(name),
                Some(&Member::Conn { epoch, conn }) => MemberName::Conn { epoch, conn },
                None => continue,
            };
            member.encode(false, out);
        }
    }
}
