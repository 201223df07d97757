//! All subscriptions to one text: the plain ones, and the members of each queue group.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::SubId;

/// An interest's place in the router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterestId(u32);

impl InterestId {
    pub(super) fn new(index: u32) -> Self {
        Self(index)
    }

    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The subscriptions to one subject or pattern.
#[derive(Debug, Default)]
pub struct Interest {
    subject: Box<[u8]>,
    is_pattern: bool,
    plain: Vec<SubId>,
    /// A group that has lost its members stays until the interest ends: subscriptions name groups
    /// by number.
    queues: Vec<Queue>,
    by_name: HashMap<Box<[u8]>, u32, RandomState>,
    vacant: Vec<u32>,
    members: usize,
}

/// The members of a queue group: each message goes to one of them.
#[derive(Debug)]
pub struct Queue {
    name: Box<[u8]>,
    members: Vec<SubId>,
}

impl Queue {
    /// Its name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Its members, in no order.
    pub fn members(&self) -> &[SubId] {
        &self.members
    }
}

impl Interest {
    pub(super) fn new(subject: &[u8], is_pattern: bool) -> Self {
        Self { subject: subject.into(), is_pattern, ..Self::default() }
    }

    /// Subscriptions that each get every message, in no order.
    pub fn plain(&self) -> &[SubId] {
        &self.plain
    }

    /// Queue groups; some may be empty.
    pub fn queues(&self) -> &[Queue] {
        &self.queues
    }

    /// What was subscribed to.
    pub fn subject(&self) -> &[u8] {
        &self.subject
    }

    pub(super) fn is_pattern(&self) -> bool {
        self.is_pattern
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members == 0
    }

    pub(super) fn queue_name(&self, queue: Option<u32>) -> &[u8] {
        queue.map_or(b"", |queue| &self.queues[queue as usize].name)
    }

    /// Adds a member and says which group it is in and where in its list.
    pub(super) fn join(&mut self, queue: &[u8], id: SubId) -> (Option<u32>, u32) {
        self.members += 1;
        let (group, list) = if queue.is_empty() {
            (None, &mut self.plain)
        } else {
            let group = self.group(queue);
            (Some(group), &mut self.queues[group as usize].members)
        };
        list.push(id);
        (group, (list.len() - 1) as u32)
    }

    /// Removes a member; the one that took its place, if any, is returned.
    pub(super) fn leave(&mut self, queue: Option<u32>, position: u32) -> Option<SubId> {
        self.members -= 1;
        let Some(number) = queue else {
            self.plain.swap_remove(position as usize);
            return self.plain.get(position as usize).copied();
        };
        let queue = &mut self.queues[number as usize];
        queue.members.swap_remove(position as usize);
        if queue.members.is_empty() {
            self.by_name.remove(&queue.name);
            self.vacant.push(number);
        }
        queue.members.get(position as usize).copied()
    }

    /// The number of the group of that name; a new one takes the place of one without members.
    fn group(&mut self, name: &[u8]) -> u32 {
        if let Some(&known) = self.by_name.get(name) {
            return known;
        }
        let queue = Queue { name: name.into(), members: Vec::new() };
        let number = match self.vacant.pop() {
            Some(vacant) => {
                self.queues[vacant as usize] = queue;
                vacant
            }
            None => {
                self.queues.push(queue);
                (self.queues.len() - 1) as u32
            }
        };
        self.by_name.insert(name.into(), number);
        number
    }
}
