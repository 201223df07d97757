//! A map by id, in order, whose copy costs next to nothing. Knows nothing of what it keeps.
//!
//! A tree of nodes with at most [`MOST`] items, as a B-tree is. A copy shares all nodes with the map but the root, and a
//! change copies what it still shares, a node for each level. So a checkpoint captures any number of entries by copying
//! a few, and no command behind it has much to copy either. Ids mostly come ascending: nodes they leave behind are full.

use std::iter::Peekable;
use std::ops::Range;
use std::sync::Arc;

/// Most items of a node.
const MOST: usize = 64;

/// A map from ids to values.
#[derive(Debug, Clone)]
pub struct ById<V> {
    root: Node<V>,
    len: usize,
}

/// None is empty, except for the root of an empty map. Leaves are equally far from the root.
#[derive(Debug, Clone)]
enum Node<V> {
    Leaf(Vec<(u64, V)>),
    /// The ids of a child are not below the one beside it, except for the first child, and below that of the next.
    Branch(Vec<(u64, Arc<Node<V>>)>),
}

/// What became of a node to which an entry was added.
enum Added<V> {
    /// It has one more.
    New,
    /// There was one of the same id.
    Replaced(V),
    /// It was full: what comes behind it, and an id at or before all of that.
    Split(u64, Node<V>),
}

impl<V> Default for ById<V> {
    fn default() -> Self {
        ById { root: Node::default(), len: 0 }
    }
}

impl<V: Clone> ById<V> {
    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True without entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many items a copy does not share.
    pub fn unshared(&self) -> usize {
        self.root.len()
    }

    /// What is kept of an id.
    pub fn get(&self, id: u64) -> Option<&V> {
        let mut node = &self.root;
        loop {
            match node {
                Node::Leaf(entries) => return entries.get(place(entries, id).ok()?).map(|e| &e.1),
                Node::Branch(children) => node = &children.get(child_of(children, id))?.1,
            }
        }
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, id: u64) -> Option<&mut V> {
        let mut node = &mut self.root;
        loop {
            match node {
                Node::Leaf(entries) => {
                    let at = place(entries, id).ok()?;
                    return entries.get_mut(at).map(|entry| &mut entry.1);
                }
                Node::Branch(children) => {
                    let at = child_of(children, id);
                    node = Arc::make_mut(&mut children.get_mut(at)?.1);
                }
            }
        }
    }

    /// Keeps `value` of `id`; returns what was kept of it before.
    pub fn insert(&mut self, id: u64, value: V) -> Option<V> {
        match self.root.insert(id, value) {
            Added::Replaced(before) => return Some(before),
            Added::New => {}
            Added::Split(first, right) => {
                let left = std::mem::take(&mut self.root);
                self.root = Node::Branch(vec![(0, Arc::new(left)), (first, Arc::new(right))]);
            }
        }
        self.len += 1;
        None
    }

    /// The same for many. Those that come ascending behind all others are added a node at a time. `replaced` is told
    /// what was kept before.
    pub fn insert_all(
        &mut self,
        entries: impl IntoIterator<Item = (u64, V)>,
        mut replaced: impl FnMut(u64, V),
    ) {
        let mut entries = entries.into_iter().peekable();
        while let Some((id, value)) = entries.next() {
            if let Some(before) = self.insert(id, value) {
                replaced(id, before);
            }
            if entries.peek().is_some() {
                self.len += self.root.fill_last(&mut entries);
            }
        }
    }

    /// Takes out what is kept of an id.
    pub fn remove(&mut self, id: u64) -> Option<V> {
        let mut removed = None;
        self.remove_range(id..id.saturating_add(1), |_, value| removed = Some(value));
        removed
    }

    /// Takes out what is kept of these ids, in their order, a node at a time.
    pub fn remove_range(&mut self, ids: Range<u64>, mut removed: impl FnMut(u64, V)) {
        if ids.is_empty() {
            return;
        }
        let mut count = 0;
        self.root.remove_range(&ids, &mut |id, value| {
            count += 1;
            removed(id, value);
        });
        self.len -= count;
        while let Node::Branch(children) = &mut self.root
            && children.len() < 2
        {
            let only = children.pop().map(|(_, only)| Arc::unwrap_or_clone(only));
            self.root = only.unwrap_or_default();
        }
    }

    /// Takes out the entry with the smallest id.
    pub fn pop_first(&mut self) -> Option<(u64, V)> {
        let mut node = &self.root;
        let id = loop {
            match node {
                Node::Leaf(entries) => break entries.first()?.0,
                Node::Branch(children) => node = &children.first()?.1,
            }
        };
        self.remove(id).map(|value| (id, value))
    }

    /// All entries, by id.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &V)> {
        self.iter_from(0)
    }

    /// Entries from an id on.
    pub fn iter_from(&self, from: u64) -> impl Iterator<Item = (u64, &V)> {
        let mut above = Vec::new();
        let mut below = None;
        let mut node = &self.root;
        let mut entries = loop {
            match node {
                Node::Leaf(leaf) => {
                    break leaf[leaf.partition_point(|(id, _)| *id < from)..].iter();
                }
                Node::Branch(children) => {
                    let at = child_of(children, from);
                    above.push(children[at + 1..].iter());
                    node = &children[at].1;
                }
            }
        };
        std::iter::from_fn(move || {
            loop {
                let next: Option<&Node<V>> = below.take();
                match next {
                    Some(Node::Leaf(leaf)) => entries = leaf.iter(),
                    Some(Node::Branch(children)) => above.push(children.iter()),
                    None => {}
                }
                if let Some((id, value)) = entries.next() {
                    return Some((*id, value));
                }
                match above.last_mut()?.next() {
                    Some((_, node)) => below = Some(&**node),
                    None => drop(above.pop()),
                }
            }
        })
    }
}

impl<V> Default for Node<V> {
    fn default() -> Self {
        Node::Leaf(Vec::new())
    }
}

impl<V: Clone> Node<V> {
    fn len(&self) -> usize {
        match self {
            Node::Leaf(entries) => entries.len(),
            Node::Branch(children) => children.len(),
        }
    }

    fn insert(&mut self, id: u64, value: V) -> Added<V> {
        match self {
            Node::Leaf(entries) => match place(entries, id) {
                Ok(at) => Added::Replaced(std::mem::replace(&mut entries[at].1, value)),
                Err(at) => add(entries, at, (id, value), Node::Leaf),
            },
            Node::Branch(children) => {
                let at = child_of(children, id);
                match Arc::make_mut(&mut children[at].1).insert(id, value) {
                    Added::Split(first, right) => {
                        add(children, at + 1, (first, Arc::new(right)), Node::Branch)
                    }
                    added => added,
                }
            }
        }
    }

    /// Fills up the last leaf with entries that come behind all others; how many.
    fn fill_last(&mut self, entries: &mut Peekable<impl Iterator<Item = (u64, V)>>) -> usize {
        match self {
            Node::Leaf(leaf) => {
                let before = leaf.len();
                let mut last = leaf.last().map(|(id, _)| *id);
                while leaf.len() < MOST
                    && let Some(entry) = entries.next_if(|(id, _)| last.is_none_or(|l| l < *id))
                {
                    last = Some(entry.0);
                    leaf.push(entry);
                }
                leaf.len() - before
            }
            Node::Branch(children) => match children.last_mut() {
                Some((_, child)) => Arc::make_mut(child).fill_last(entries),
                None => 0,
            },
        }
    }

    fn remove_range(&mut self, ids: &Range<u64>, removed: &mut impl FnMut(u64, V)) {
        match self {
            Node::Leaf(entries) => {
                let [start, end] =
                    [ids.start, ids.end].map(|id| place(entries, id).unwrap_or_else(|at| at));
                entries.drain(start..end).for_each(|(id, value)| removed(id, value));
            }
            Node::Branch(children) => {
                let (first, last) =
                    (child_of(children, ids.start), child_of(children, ids.end - 1));
                for (_, child) in &mut children[first..=last] {
                    Arc::make_mut(child).remove_range(ids, removed);
                }
                for at in (first..=last).rev() {
                    match children[at].1.len() {
                        0 => drop(children.remove(at)),
                        left if left < MOST / 4 => {
                            join(children, at);
                            at.checked_sub(1).into_iter().for_each(|before| join(children, before));
                        }
                        _ => {}
                    }
                }
            }
        }
    }

    /// Adds the items of the next node, of which none is below `first`.
    fn append(&mut self, first: u64, next: Node<V>) {
        match (self, next) {
            (Node::Leaf(entries), Node::Leaf(next)) => entries.extend(next),
            (Node::Branch(children), Node::Branch(mut next)) => {
                // It is the first child no longer, and may have ids below the one beside it.
                next[0].0 = first;
                children.extend(next);
            }
            _ => unreachable!("leaves are equally far from the root"),
        }
    }
}

/// Where an entry is, or where it would be.
fn place<V>(entries: &[(u64, V)], id: u64) -> Result<usize, usize> {
    let Some((first, _)) = entries.first() else { return Err(0) };
    // Without holes an id is as far from the first one as its place.
    let guess = id.wrapping_sub(*first) as usize;
    match entries.get(guess) {
        Some((found, _)) if *found == id => Ok(guess),
        None if entries.last().is_some_and(|(last, _)| *last < id) => Err(entries.len()),
        _ => entries.binary_search_by_key(&id, |(id, _)| *id),
    }
}

/// The one child that can have an id.
fn child_of<T>(children: &[(u64, T)], id: u64) -> usize {
    if children.last().is_some_and(|(first, _)| *first <= id) {
        return children.len() - 1;
    }
    children.partition_point(|(first, _)| *first <= id).saturating_sub(1)
}

/// Adds an item in its place. A node that is full gives its second half away; nothing, if the item comes last.
fn add<V, T>(
    items: &mut Vec<(u64, T)>,
    at: usize,
    item: (u64, T),
    node: impl FnOnce(Vec<(u64, T)>) -> Node<V>,
) -> Added<V> {
    if items.len() < MOST {
        items.insert(at, item);
        return Added::New;
    }
    let right = if at == MOST {
        let mut right = Vec::with_capacity(MOST);
        right.push(item);
        right
    } else {
        let mut right = items.split_off(MOST / 2);
        match at.checked_sub(MOST / 2) {
            Some(at) if at > 0 => right.insert(at, item),
            _ => items.insert(at, item),
        }
        right
    };
    Added::Split(right[0].0, node(right))
}

/// Joins a child with the next one if together they have half of what a node may have.
fn join<V: Clone>(children: &mut Vec<(u64, Arc<Node<V>>)>, at: usize) {
    if let Some([(_, left), (_, right)]) = children.get(at..at + 2)
        && left.len() + right.len() <= MOST / 2
    {
        let (first, right) = children.remove(at + 1);
        Arc::make_mut(&mut children[at].1).append(first, Arc::unwrap_or_clone(right));
    }
}
