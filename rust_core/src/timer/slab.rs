//! Timers in one vector, threaded by index on doubly linked lists, so that a timer changes lists
//! without its value moving in memory.
//!
//! Owns the keys, the links and the reuse of memory. Must not know what the lists mean nor what time
//! it is: a deadline is a number it keeps beside the value.

use std::num::NonZeroU32;

/// Position of a timer in the slab; valid until the timer is removed.
pub(super) type Index = u32;

const NIL: Index = Index::MAX;

/// Names one timer for ever: a key whose timer is gone finds nothing, even if its memory was reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TimerKey {
    index: Index,
    generation: NonZeroU32,
}

#[derive(Debug)]
struct Node<T> {
    /// `None` in free nodes.
    value: Option<T>,
    deadline_ms: u64,
    prev: Index,
    /// In free nodes, the next free node.
    next: Index,
    generation: NonZeroU32,
    list: u16,
}

const _: () = assert!(size_of::<Node<[u64; 3]>>() <= 56 && size_of::<Option<TimerKey>>() == 8);

#[derive(Debug, Clone, Copy)]
struct List {
    head: Index,
    tail: Index,
}

const EMPTY: List = List { head: NIL, tail: NIL };

#[derive(Debug)]
pub(super) struct Slab<T> {
    nodes: Vec<Node<T>>,
    lists: Box<[List]>,
    free: Index,
    len: usize,
}

impl<T> Slab<T> {
    pub(super) fn new(lists: usize) -> Self {
        Self { nodes: Vec::new(), lists: vec![EMPTY; lists].into(), free: NIL, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Stores a timer that is on no list yet.
    pub(super) fn insert(&mut self, deadline_ms: u64, value: T) -> (Index, TimerKey) {
        self.len += 1;
        if let Some(node) = self.nodes.get_mut(self.free as usize) {
            let index = std::mem::replace(&mut self.free, node.next);
            node.value = Some(value);
            node.deadline_ms = deadline_ms;
            return (index, TimerKey { index, generation: node.generation });
        }
        assert!(self.nodes.len() < NIL as usize, "more timers than 32 bits can number");
        let index = self.nodes.len() as Index;
        let generation = NonZeroU32::MIN;
        let value = Some(value);
        self.nodes.push(Node { value, deadline_ms, prev: NIL, next: NIL, generation, list: 0 });
        (index, TimerKey { index, generation })
    }

    /// Frees a timer that was unlinked.
    pub(super) fn remove(&mut self, index: Index) -> Option<T> {
        let node = &mut self.nodes[index as usize];
        let value = node.value.take()?;
        self.len -= 1;
        // A node that has used up its generations is given up, lest an old key match again.
        if let Some(generation) = node.generation.checked_add(1) {
            node.generation = generation;
            node.next = std::mem::replace(&mut self.free, index);
        }
        Some(value)
    }

    pub(super) fn find(&self, key: TimerKey) -> Option<Index> {
        let node = self.nodes.get(key.index as usize)?;
        (node.generation == key.generation && node.value.is_some()).then_some(key.index)
    }

    pub(super) fn deadline_ms(&self, index: Index) -> u64 {
        self.nodes[index as usize].deadline_ms
    }

    pub(super) fn first(&self, list: usize) -> Option<Index> {
        some(self.lists[list].head)
    }

    pub(super) fn last(&self, list: usize) -> Option<Index> {
        some(self.lists[list].tail)
    }

    /// The timer of a list that has exactly one.
    pub(super) fn only(&self, list: usize) -> Option<Index> {
        let List { head, tail } = self.lists[list];
        some(head).filter(|_| head == tail)
    }

    pub(super) fn next(&self, index: Index) -> Option<Index> {
        some(self.nodes[index as usize].next)
    }

    /// Appends a timer that is on no list.
    pub(super) fn push_back(&mut self, list: usize, index: Index) {
        let prev = std::mem::replace(&mut self.lists[list].tail, index);
        match some(prev) {
            Some(prev) => self.nodes[prev as usize].next = index,
            None => self.lists[list].head = index,
        }
        let node = &mut self.nodes[index as usize];
        node.prev = prev;
        node.next = NIL;
        node.list = list as u16;
    }

    /// Takes a timer off its list, and tells which one that was.
    pub(super) fn unlink(&mut self, index: Index) -> usize {
        let Node { prev, next, list, .. } = self.nodes[index as usize];
        let list = usize::from(list);
        match some(prev) {
            Some(prev) => self.nodes[prev as usize].next = next,
            None => self.lists[list].head = next,
        }
        match some(next) {
            Some(next) => self.nodes[next as usize].prev = prev,
            None => self.lists[list].tail = prev,
        }
        list
    }

    /// Empties all lists into one chain, to be followed with [`next`](Self::next): lists ascending,
    /// each in its order.
    pub(super) fn detach_all(&mut self) -> Option<Index> {
        let mut chain = EMPTY;
        for list in &mut self.lists {
            let List { head, tail } = std::mem::replace(list, EMPTY);
            if head == NIL {
                continue;
            }
            match some(chain.tail) {
                Some(last) => self.nodes[last as usize].next = head,
                None => chain.head = head,
            }
            chain.tail = tail;
        }
        some(chain.head)
    }
}

fn some(index: Index) -> Option<Index> {
    (index != NIL).then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_without_generations_left_is_never_reused() {
        let mut slab = Slab::new(1);
        let (index, _) = slab.insert(0, 'a');
        slab.nodes[index as usize].generation = NonZeroU32::MAX;
        let last = TimerKey { index, generation: NonZeroU32::MAX };
        assert_eq!(slab.remove(index), Some('a'));

        let (other, _) = slab.insert(0, 'b');
        assert_ne!(other, index);
        assert_eq!(slab.find(last), None);
        assert_eq!(slab.len(), 1);
    }

    #[test]
    fn a_freed_node_is_reused_under_another_key() {
        let mut slab = Slab::new(1);
        let (index, old) = slab.insert(0, 'a');
        slab.remove(index);
        let (again, new) = slab.insert(0, 'b');
        assert_eq!(again, index);
        assert_eq!(slab.find(old), None);
        assert_eq!(slab.find(new), Some(index));
        assert_eq!(slab.nodes.len(), 1);
    }
}
