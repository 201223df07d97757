//! A mailbox with its consumer groups and timers: what one slot of the store holds.

use std::sync::Arc;

use hashbrown::HashMap;

use super::activity::GroupCounts;
use super::consumers::{ConsumerSlot, Consumers};
use super::indexes::GroupIx;
use super::usage::OwnerIx;
use crate::group::Group;
use crate::mailbox::{Extras, Mailbox};
use crate::timer::TimerKey;

/// A group, the timer of its earliest lease, and when it was last used.
pub struct GroupSlot {
    /// Its name.
    pub name: Arc<str>,
    /// Its state.
    pub group: Group,
    /// The armed timer and its deadline.
    pub timer: Option<(TimerKey, u64)>,
    /// When it was last used, by the monotonic clock; that it was is not recorded.
    pub used_ms: u64,
    /// The timer that looks whether it is still used.
    pub idle: Option<TimerKey>,
    /// What it has done.
    pub counts: GroupCounts,
}

/// The groups of one mailbox. A group keeps its index for life: timers and connections know it by that. The place of
/// a removed one is free for the next. What still refers to it by index finds no group, or the next one, of which
/// the same may be asked: to look at its leases, or to release what a closed connection holds.
#[derive(Default)]
struct Groups {
    by_name: HashMap<Arc<str>, GroupIx, foldhash::fast::RandomState>,
    list: Vec<Option<GroupSlot>>,
    free: Vec<GroupIx>,
    /// Where the mailbox is a stream.
    consumers: Consumers,
}

impl Groups {
    fn find(&self, name: &str) -> Option<GroupIx> {
        self.by_name.get(name).copied()
    }

    fn add(&mut self, name: &str, group: Group) -> GroupIx {
        let name: Arc<str> = name.into();
        let at = self.free.pop().unwrap_or(GroupIx(self.list.len() as u32));
        let replaced = self.by_name.insert(Arc::clone(&name), at);
        debug_assert!(replaced.is_none(), "the group is there already");
        if at.place() == self.list.len() {
            self.list.push(None);
        }
        self.list[at.place()] = Some(GroupSlot {
            name,
            group,
            timer: None,
            used_ms: 0,
            idle: None,
            counts: GroupCounts::default(),
        });
        at
    }

    fn remove(&mut self, at: GroupIx) -> Option<GroupSlot> {
        let slot = self.list.get_mut(at.place())?.take()?;
        self.by_name.remove(&slot.name);
        self.free.push(at);
        Some(slot)
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
    /// Whom it is counted to.
    pub owner: OwnerIx,
}

/// Three lines: one more is one more to be read for every message.
const _: () = assert!(size_of::<Option<Slot>>() <= 3 * 64);

impl Slot {
    /// A slot without groups.
    pub fn new(mailbox: Mailbox, owner: OwnerIx) -> Slot {
        Slot { mailbox, groups: None, expiry: None, owner }
    }

    /// All groups, by index.
    pub fn groups(&self) -> impl Iterator<Item = &GroupSlot> {
        self.groups.iter().flat_map(|groups| groups.list.iter().flatten())
    }

    /// All groups with their indexes.
    pub fn groups_by_place(&self) -> impl Iterator<Item = (GroupIx, &GroupSlot)> {
        let list = self.groups.iter().flat_map(|groups| groups.list.iter().enumerate());
        list.filter_map(|(at, group)| Some((GroupIx(at as u32), group.as_ref()?)))
    }

    /// Panics unless each group is found by its name, and every place is used or free. For tests.
    pub fn check_groups(&self) {
        let Some(groups) = &self.groups else { return };
        for (at, group) in self.groups_by_place() {
            assert_eq!(groups.find(&group.name), Some(at), "place of group {}", group.name);
        }
        let count = groups.by_name.len();
        assert_eq!(self.groups().count(), count, "names of groups");
        assert_eq!(groups.list.len(), count + groups.free.len(), "used and free places of groups");
    }

    /// All groups, to change them.
    pub fn groups_mut(&mut self) -> impl Iterator<Item = &mut GroupSlot> {
        self.groups.iter_mut().flat_map(|groups| groups.list.iter_mut().flatten())
    }

    /// How many groups there are.
    pub fn group_count(&self) -> usize {
        self.groups.as_deref().map_or(0, |groups| groups.by_name.len())
    }

    /// Indexes of all groups, and of places where there was one.
    pub fn group_places(&self) -> impl Iterator<Item = GroupIx> + use<> {
        (0..self.groups.as_deref().map_or(0, |groups| groups.list.len() as u32)).map(GroupIx)
    }

    /// The group of an index, unless it was removed.
    pub fn group(&self, at: GroupIx) -> Option<&GroupSlot> {
        self.groups.as_deref()?.list.get(at.place())?.as_ref()
    }

    /// The same, to change it.
    pub fn group_mut(&mut self, at: GroupIx) -> Option<&mut GroupSlot> {
        self.groups.as_deref_mut()?.list.get_mut(at.place())?.as_mut()
    }

    /// A group that somebody knows to be there. Panics if it is not: to pass over that would lose what was to be done.
    pub fn known_group(&self, at: GroupIx) -> &GroupSlot {
        self.group(at).unwrap_or_else(|| group_gone(at))
    }

    /// The same, to change it.
    pub fn known_group_mut(&mut self, at: GroupIx) -> &mut GroupSlot {
        self.group_mut(at).unwrap_or_else(|| group_gone(at))
    }

    /// The consumers of a stream, if there ever were any.
    pub fn consumers(&self) -> Option<&Consumers> {
        self.groups.as_deref().map(|groups| &groups.consumers)
    }

    /// The same, to change them.
    pub fn consumers_mut(&mut self) -> Option<&mut Consumers> {
        self.groups.as_deref_mut().map(|groups| &mut groups.consumers)
    }

    /// The mailbox and, apart from it, its consumers.
    pub fn with_consumers(&mut self) -> (&Mailbox, &mut Consumers) {
        (&self.mailbox, &mut self.groups.get_or_insert_default().consumers)
    }

    /// The mailbox and, apart from it, one of its consumers.
    pub fn consumer_and_mailbox(&mut self, id: u64) -> Option<(&Mailbox, &mut ConsumerSlot)> {
        let consumer = self.groups.as_deref_mut()?.consumers.get_mut(id)?;
        Some((&self.mailbox, consumer))
    }

    /// Whether some consumer wants messages of a subject.
    pub fn is_of_interest(&self, subject: &str) -> bool {
        let consumers = self.consumers().into_iter().flat_map(Consumers::iter);
        consumers.into_iter().any(|(_, slot)| slot.consumer.policy.wants(subject))
    }

    /// Takes out all consumers.
    pub fn take_consumers(&mut self) -> Vec<(u64, ConsumerSlot)> {
        let consumers = self.groups.as_deref_mut().map(|groups| &mut groups.consumers);
        consumers.map_or_else(Vec::new, Consumers::take)
    }

    /// How much there is to copy when it is captured.
    pub fn weight(&self) -> usize {
        let lanes = self.mailbox.lanes().iter().map(|(_, lane)| lane.shares());
        let groups = self.groups().map(|group| group.group.unshared());
        let extras = self.mailbox.extras().map_or(0, Extras::unshared);
        let consumers = self.consumers().into_iter().flat_map(Consumers::iter);
        let consumers = consumers.map(|(_, slot)| slot.consumer.unshared());
        lanes.sum::<usize>() + groups.sum::<usize>() + consumers.sum::<usize>() + extras
    }

    /// Takes deliveries of messages that are not there out of every group.
    pub fn forget_lost_deliveries(&mut self) {
        let Some(groups) = &mut self.groups else { return };
        for group in groups.list.iter_mut().flatten() {
            let pending = group.group.all_pending().map(|pending| pending.delivered.msg_id);
            let lost: Vec<u64> = pending.filter(|&id| self.mailbox.get(id).is_none()).collect();
            for msg_id in lost {
                group.group.forget(msg_id);
            }
        }
    }

    /// Takes out all groups.
    pub fn take_groups(&mut self) -> impl Iterator<Item = Group> + use<> {
        let groups = self.groups.take().map_or_else(Vec::new, |groups| groups.list);
        groups.into_iter().flatten().map(|slot| slot.group)
    }

    /// Takes out all messages with what groups were given of them: a slot that no address leads to. What is left is empty,
    /// and goes on with the same numbers and positions.
    pub fn take_messages(&mut self) -> Slot {
        let mut taken = Slot::new(self.mailbox.take_messages(), self.owner);
        for group in self.groups_mut() {
            taken.add_group(&group.name, group.group.take_deliveries());
        }
        taken
    }

    /// The index of a group.
    pub fn find_group(&self, name: &str) -> Option<GroupIx> {
        self.groups.as_deref()?.find(name)
    }

    /// Adds a group that is not there yet and returns its index.
    pub fn add_group(&mut self, name: &str, group: Group) -> GroupIx {
        self.groups.get_or_insert_default().add(name, group)
    }

    /// Takes a group out. Its timers are the caller's to cancel.
    pub fn remove_group(&mut self, at: GroupIx) -> Option<GroupSlot> {
        self.groups.as_deref_mut()?.remove(at)
    }
}

#[cold]
fn group_gone(at: GroupIx) -> ! {
    panic!("group {at} is gone")
}
