//! Subscriptions by subject, with wildcards and queue groups.
//!
//! Owns subscriptions and the index over them. Must not know connections beyond their number, nor
//! what a message is.
//!
//! A subject without wildcards is found in one step, by a hash of the whole; patterns live in a trie
//! of tokens. Both lead to an *interest*: all subscriptions to the same text. Nothing here recurses,
//! so a subject of ten thousand tokens costs time and memory in proportion, not stack.

mod interest;
mod patterns;
mod route;
mod trie;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use std::hash::BuildHasher;

use crate::nats;
pub use interest::{Interest, InterestId, Queue};
pub use patterns::Patterns;
pub use route::{Hit, Route};
use trie::Trie;

/// The client's name for a subscription.
pub type Sid = smallvec::SmallVec<[u8; 16]>;

/// A subscription's place in the router; reused after it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SubId(u32);

/// One subscription.
#[derive(Debug)]
pub struct Subscription {
    /// The connection it belongs to.
    pub owner: u32,
    /// The client's name for it.
    pub sid: Sid,
    /// Messages delivered.
    pub delivered: u64,
    /// Deliveries after which it ends; 0 for never.
    pub max: u64,
    /// Who feeds it from a mailbox; 0 is nobody.
    pub reader: u64,
    interest: InterestId,
    /// Which queue group of the interest, and where in its list of members.
    queue: Option<u32>,
    position: u32,
}

/// The interests that a published subject meets.
pub type Matches = smallvec::SmallVec<[InterestId; 4]>;

/// All subscriptions.
#[derive(Debug)]
pub struct Router {
    subscriptions: Vec<Option<Subscription>>,
    free_subscriptions: Vec<u32>,
    interests: Vec<Interest>,
    free_interests: Vec<u32>,
    by_subject: HashTable<InterestId>,
    patterns: Trie,
    hasher: FixedState,
    count: usize,
    generation: u64,
}

impl Router {
    /// A router without subscriptions; `seed` keeps its hashes from being foreseen.
    pub fn new(seed: u64) -> Self {
        Self {
            subscriptions: Vec::new(),
            free_subscriptions: Vec::new(),
            interests: Vec::new(),
            free_interests: Vec::new(),
            by_subject: HashTable::new(),
            patterns: Trie::new(seed),
            hasher: FixedState::with_seed(seed),
            count: 0,
            generation: 0,
        }
    }

    /// The number of subscriptions.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Changes whenever a match could give another result than before.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Adds a subscription to a valid subject; `queue` is empty for none.
    pub fn subscribe(&mut self, owner: u32, subject: &[u8], queue: &[u8], sid: Sid) -> SubId {
        let interest = self.interest(subject);
        let id = SubId(match self.free_subscriptions.pop() {
            Some(free) => free,
            None => {
                self.subscriptions.push(None);
                (self.subscriptions.len() - 1) as u32
            }
        });
        let (queue, position) = self.interests[interest.index()].join(queue, id);
        let (delivered, max, reader) = (0, 0, 0);
        let subscription =
            Subscription { owner, sid, delivered, max, reader, interest, queue, position };
        self.subscriptions[id.index()] = Some(subscription);
        self.count += 1;
        id
    }

    /// Ends a subscription.
    pub fn unsubscribe(&mut self, id: SubId) -> Option<Subscription> {
        let ended = self.subscriptions.get_mut(id.index())?.take()?;
        self.free_subscriptions.push(id.0);
        self.count -= 1;
        let interest = &mut self.interests[ended.interest.index()];
        if let Some(moved) = interest.leave(ended.queue, ended.position)
            && let Some(Some(moved)) = self.subscriptions.get_mut(moved.index())
        {
            moved.position = ended.position;
        }
        if interest.is_empty() {
            self.remove_interest(ended.interest);
        }
        Some(ended)
    }

    /// A subscription.
    pub fn get(&self, id: SubId) -> Option<&Subscription> {
        self.subscriptions.get(id.index())?.as_ref()
    }

    /// A subscription, to count deliveries or set their limit.
    pub fn get_mut(&mut self, id: SubId) -> Option<&mut Subscription> {
        self.subscriptions.get_mut(id.index())?.as_mut()
    }

    /// What a subscription listens to, and its queue group.
    pub fn subject_of(&self, id: SubId) -> Option<(&[u8], &[u8])> {
        let subscription = self.get(id)?;
        let interest = &self.interests[subscription.interest.index()];
        Some((interest.subject(), interest.queue_name(subscription.queue)))
    }

    /// The interests that `subject` meets, added to `found`.
    pub fn matches(&self, subject: &[u8], found: &mut Matches) {
        if let Some(&exact) = self.find(subject) {
            found.push(exact);
        }
        self.patterns.matches(subject, found);
    }

    /// An interest that [`Router::matches`] gave, while the generation is the same.
    pub fn interest_at(&self, id: InterestId) -> &Interest {
        &self.interests[id.index()]
    }

    /// The interest and, apart from it, the subscriptions it lists.
    pub fn split(&mut self, id: InterestId) -> (&Interest, Members<'_>) {
        (&self.interests[id.index()], Members(&mut self.subscriptions))
    }

    fn find(&self, subject: &[u8]) -> Option<&InterestId> {
        let same = |id: &InterestId| self.interests[id.index()].subject() == subject;
        self.by_subject.find(self.hasher.hash_one(subject), same)
    }

    /// The interest for a subject, made if there is none.
    fn interest(&mut self, subject: &[u8]) -> InterestId {
        let is_pattern = nats::has_wildcard(subject);
        let existing =
            if is_pattern { self.patterns.get(subject) } else { self.find(subject).copied() };
        if let Some(existing) = existing {
            return existing;
        }
        let interest = Interest::new(subject, is_pattern);
        let id = match self.free_interests.pop() {
            Some(free) => {
                self.interests[free as usize] = interest;
                InterestId::new(free)
            }
            None => {
                self.interests.push(interest);
                InterestId::new((self.interests.len() - 1) as u32)
            }
        };
        if is_pattern {
            self.patterns.insert(subject, id);
        } else {
            let (interests, hasher) = (&self.interests, &self.hasher);
            self.by_subject.insert_unique(hasher.hash_one(subject), id, |id| {
                hasher.hash_one(interests[id.index()].subject())
            });
        }
        self.generation += 1;
        id
    }

    fn remove_interest(&mut self, id: InterestId) {
        let interest = std::mem::take(&mut self.interests[id.index()]);
        if interest.is_pattern() {
            self.patterns.remove(interest.subject());
        } else {
            let hash = self.hasher.hash_one(interest.subject());
            if let Ok(entry) = self.by_subject.find_entry(hash, |&other| other == id) {
                entry.remove();
            }
        }
        self.free_interests.push(id.index() as u32);
        self.generation += 1;
    }
}

/// The subscriptions, while an interest is being read.
pub struct Members<'a>(&'a mut Vec<Option<Subscription>>);

impl Members<'_> {
    /// A member.
    #[inline]
    pub fn get_mut(&mut self, id: SubId) -> Option<&mut Subscription> {
        self.0.get_mut(id.index())?.as_mut()
    }
}

impl SubId {
    fn index(self) -> usize {
        self.0 as usize
    }
}
