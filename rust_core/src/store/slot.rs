//! A mailbox with its consumer groups and timers: what one slot of the store holds.

use std::sync::Arc;

use hashbrown::HashMap;

use crate::group::Group;
use crate::mailbox::{Mailbox, Sideline};
use crate::timer::TimerKey;

/// A group and the timer of its earliest lease.
pub struct GroupSlot {
    /// Its name.
    pub name: Arc<str>,
    /// Its state.
    pub group: Group,
    /// The armed timer and its deadline.
    pub timer: Option<(TimerKey, u64)>,
}

/// The groups of one mailbox. They go only when the mailbox goes.
#[derive(Default)]
pub struct Groups {
    by_name: HashMap<Arc<str>, u32, foldhash::fast::RandomState>,
    list: Vec<GroupSlot>,
}

impl Groups {
    /// The index of a group.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).map(|&at| at as usize)
    }

    /// Adds a group that is not there yet and returns its index.
    pub fn add(&mut self, name: &str, group: Group) -> usize {
        let name: Arc<str> = name.into();
        self.by_name.insert(Arc::clone(&name), self.list.len() as u32);
        self.list.push(GroupSlot { name, group, timer: None });
        self.list.len() - 1
    }

    /// All groups, oldest first.
    pub fn list(&self) -> &[GroupSlot] {
        &self.list
    }

    /// The same, to change them.
    pub fn list_mut(&mut self) -> &mut [GroupSlot] {
        &mut self.list
    }
}

/// One mailbox of the store, in as few lines of the processor's cache as can be.
#[repr(align(64))]
pub struct Slot {
    /// The mailbox.
    pub mailbox: Mailbox,
    groups: Option<Box<Groups>>,
    /// The timer of the mailbox's expiry.
    pub expiry: Option<TimerKey>,
}

/// Three lines: one more is one more to be read for every message.
const _: () = assert!(size_of::<Option<Slot>>() <= 3 * 64);

impl Slot {
    /// A slot without groups.
    pub fn new(mailbox: Mailbox) -> Slot {
        Slot { mailbox, groups: None, expiry: None }
    }

    /// All groups.
    pub fn groups(&self) -> &[GroupSlot] {
        self.groups.as_deref().map_or(&[], Groups::list)
    }

    /// All groups, to change them.
    pub fn groups_mut(&mut self) -> &mut [GroupSlot] {
        self.groups.as_deref_mut().map_or(&mut [], Groups::list_mut)
    }

    /// How much there is to copy when it is captured.
    pub fn weight(&self) -> usize {
        let lanes = self.mailbox.lanes().iter().map(|(_, lane)| lane.shares());
        let groups = self.groups().iter().map(|group| group.group.unshared());
        let sideline = self.mailbox.sideline().map_or(0, Sideline::unshared);
        lanes.sum::<usize>() + groups.sum::<usize>() + sideline
    }

    /// Takes deliveries of messages that are not there out of every group.
    pub fn forget_lost_deliveries(&mut self) {
        let Some(groups) = &mut self.groups else { return };
        for group in groups.list_mut() {
            let pending = group.group.all_pending().map(|pending| pending.delivered.msg_id);
            let lost: Vec<u64> = pending.filter(|&id| self.mailbox.get(id).is_none()).collect();
            for msg_id in lost {
                group.group.forget(msg_id);
            }
        }
    }

    /// The index of a group.
    pub fn find_group(&self, name: &str) -> Option<usize> {
        self.groups.as_deref()?.find(name)
    }

    /// Adds a group that is not there yet.
    pub fn add_group(&mut self, name: &str, group: Group) -> usize {
        self.groups.get_or_insert_default().add(name, group)
    }
}
