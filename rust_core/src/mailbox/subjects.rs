//! The subjects of a stream's messages: interned, four bytes a message, counted per subject.
//!
//! Knows messages by their number only. A checkpoint need not copy what is kept per message.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use hashbrown::HashMap;

use super::ById;

/// A subject's short name while messages have it; given to another subject later.
pub type SubjectIx = u32;

/// Messages whose subjects lie together.
const TOGETHER: usize = 64;

/// Subjects of neighbours: one more than the [`SubjectIx`], 0 for none.
type Block = Arc<[u32; TOGETHER]>;

/// One subject that messages have.
#[derive(Debug, Clone)]
pub struct Known {
    /// The subject.
    pub subject: Arc<str>,
    /// How many messages have it.
    pub count: u64,
    /// None of them is before this one.
    pub first: u64,
    /// None of them is behind this one.
    pub last: u64,
    /// The message of that number is there.
    last_is_there: bool,
}

/// The subjects of a stream.
#[derive(Debug, Default)]
pub struct Subjects {
    by_name: HashMap<Arc<str>, SubjectIx, foldhash::fast::RandomState>,
    /// The same in order: those that begin alike lie together.
    ordered: BTreeMap<Arc<str>, SubjectIx>,
    known: Vec<Option<Known>>,
    free: Vec<SubjectIx>,
    of: ById<Block>,
}

impl Subjects {
    /// A message has this subject; returns its short name.
    pub fn put(&mut self, msg_id: u64, subject: &str) -> SubjectIx {
        let ix = match self.by_name.get(subject) {
            Some(&ix) => ix,
            None => self.add(subject, msg_id),
        };
        if let Some(Some(known)) = self.known.get_mut(ix as usize) {
            known.count += 1;
            known.first = known.first.min(msg_id);
            known.last_is_there |= msg_id >= known.last;
            known.last = known.last.max(msg_id);
        }
        let (block, at) = place(msg_id);
        match self.of.get_mut(block) {
            Some(block) => Arc::make_mut(block)[at] = ix + 1,
            None => {
                let mut new = [0; TOGETHER];
                new[at] = ix + 1;
                self.of.insert(block, Arc::new(new));
            }
        }
        ix
    }

    fn add(&mut self, subject: &str, msg_id: u64) -> SubjectIx {
        let subject: Arc<str> = subject.into();
        let ix = self.free.pop().unwrap_or(self.known.len() as SubjectIx);
        let known = Known {
            subject: Arc::clone(&subject),
            count: 0,
            first: msg_id,
            last: msg_id,
            last_is_there: true,
        };
        match self.known.get_mut(ix as usize) {
            Some(place) => *place = Some(known),
            None => self.known.push(Some(known)),
        }
        self.by_name.insert(Arc::clone(&subject), ix);
        self.ordered.insert(subject, ix);
        ix
    }

    /// The subject of a message.
    pub fn of(&self, msg_id: u64) -> Option<SubjectIx> {
        let (block, at) = place(msg_id);
        self.of.get(block)?[at].checked_sub(1)
    }

    /// The messages from `from` on, each with its subject, in order. Far cheaper than to ask for the subject of each.
    pub fn iter_from(&self, from: u64) -> impl Iterator<Item = (u64, SubjectIx)> + '_ {
        let (first, _) = place(from);
        let blocks = self.of.iter_from(first).flat_map(|(number, block)| {
            let begin = number * TOGETHER as u64;
            let ids = (begin..).zip(block.iter());
            ids.filter_map(|(msg_id, ix)| Some((msg_id, ix.checked_sub(1)?)))
        });
        blocks.skip_while(move |(msg_id, _)| *msg_id < from)
    }

    /// How many messages from `from` on have a subject that is wanted. Mostly all of a subject are before `from`, or none:
    /// then they are not counted one by one.
    pub fn count_from(&self, from: u64, mut wants: impl FnMut(SubjectIx, &str) -> bool) -> u64 {
        let mut split = Vec::new();
        let (mut whole, mut of_split, mut first, mut last) = (0, 0, u64::MAX, 0);
        for (ix, known) in self.iter() {
            if known.last < from || !wants(ix, &known.subject) {
                continue;
            }
            if known.first >= from {
                whole += known.count;
                continue;
            }
            split.resize(ix as usize + 1, false);
            split[ix as usize] = true;
            of_split += known.count;
            (first, last) = (first.min(known.first), last.max(known.last));
        }
        if split.is_empty() {
            return whole;
        }
        let is_split = |(_, ix): &(u64, SubjectIx)| split.get(*ix as usize) == Some(&true);
        if from - first > last - from {
            return whole + self.iter_from(from).filter(is_split).count() as u64;
        }
        let before = self.iter_from(first).take_while(|(msg_id, _)| *msg_id < from);
        whole + of_split - before.filter(is_split).count() as u64
    }

    /// What is known of a subject.
    pub fn get(&self, ix: SubjectIx) -> Option<&Known> {
        self.known.get(ix as usize)?.as_ref()
    }

    /// What is known of a subject, by its name.
    pub fn find(&self, subject: &str) -> Option<(SubjectIx, &Known)> {
        let ix = *self.by_name.get(subject)?;
        Some((ix, self.get(ix)?))
    }

    /// The subjects that begin as all do that match a pattern, in order. Others need not be looked at.
    pub fn beginning_as(&self, pattern: &str) -> impl Iterator<Item = (SubjectIx, &str)> {
        let literal = |token: &&str| !matches!(token.trim_end_matches('.'), "*" | ">");
        let tokens = pattern.split_inclusive('.').take_while(literal);
        let begin = pattern[..tokens.map(str::len).sum()].to_owned();
        let behind = (Bound::Included(begin.as_str()), Bound::Unbounded);
        let there = self.ordered.range::<str, _>(behind).map(|(name, ix)| (*ix, &**name));
        there.take_while(move |(_, name)| name.starts_with(&begin))
    }

    /// A message has gone: its subject, and whether no other message has it, so that the short name is free.
    pub fn remove(&mut self, msg_id: u64) -> Option<(SubjectIx, bool)> {
        let (number, at) = place(msg_id);
        let block = Arc::make_mut(self.of.get_mut(number)?);
        let ix = std::mem::take(&mut block[at]).checked_sub(1)?;
        if block.iter().all(|&ix| ix == 0) {
            self.of.remove(number);
        }
        let known = self.known.get_mut(ix as usize)?;
        let (count, subject) = known.as_mut().map(|known| {
            known.count -= 1;
            known.first = if known.first == msg_id { msg_id + 1 } else { known.first };
            known.last_is_there &= known.last != msg_id;
            // Where subjects have one message each, the next to go is found at once.
            if known.count == 1 && known.last_is_there {
                known.first = known.last;
            }
            (known.count, Arc::clone(&known.subject))
        })?;
        if count == 0 {
            *known = None;
            self.by_name.remove(&subject);
            self.ordered.remove(&subject);
            self.free.push(ix);
        }
        Some((ix, count == 0))
    }

    /// How many subjects there are.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// True without any.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// All subjects, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (SubjectIx, &Known)> {
        let all = self.known.iter().enumerate();
        all.filter_map(|(ix, known)| Some((ix as SubjectIx, known.as_ref()?)))
    }

    /// The subjects as they are now. Copies their names, and next to nothing per message.
    pub fn snapshot(&self) -> SubjectsSnapshot {
        let names = self.known.iter().map(|known| known.as_ref().map(|k| Arc::clone(&k.subject)));
        SubjectsSnapshot { names: names.collect(), of: self.of.clone() }
    }

    /// How much of it a checkpoint copies.
    pub fn unshared(&self) -> usize {
        self.known.len() + self.of.unshared()
    }

    /// Panics unless each message's subject is known and counted. For tests.
    pub fn check_invariants(&self, msg_ids: impl Iterator<Item = u64>) {
        let mut counts = vec![0; self.known.len()];
        for msg_id in msg_ids {
            let Some(ix) = self.of(msg_id) else { unreachable!("{msg_id} has no subject") };
            counts[ix as usize] += 1;
            assert!(
                self.get(ix).is_some_and(|known| (known.first..=known.last).contains(&msg_id)),
                "{msg_id} is not where its subject is"
            );
        }
        for (ix, known) in self.known.iter().enumerate() {
            assert_eq!(known.as_ref().map_or(0, |k| k.count), counts[ix], "messages of a subject");
        }
        assert_eq!(self.by_name.len() + self.free.len(), self.known.len(), "names of subjects");
        assert_eq!(self.ordered.len(), self.by_name.len(), "names in order");
        for (name, ix) in &self.ordered {
            assert_eq!(self.by_name.get(name), Some(ix), "a name in order");
        }
    }
}

/// Subjects as they were, to be encoded by another thread.
#[derive(Debug)]
pub struct SubjectsSnapshot {
    names: Vec<Option<Arc<str>>>,
    of: ById<Block>,
}

impl SubjectsSnapshot {
    /// Each message with its subject, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Arc<str>)> {
        self.of.iter().flat_map(move |(number, block)| {
            block.iter().enumerate().filter_map(move |(at, ix)| {
                let name = self.names.get(ix.checked_sub(1)? as usize)?.as_ref()?;
                Some((number * TOGETHER as u64 + at as u64, name))
            })
        })
    }
}

fn place(msg_id: u64) -> (u64, usize) {
    (msg_id / TOGETHER as u64, (msg_id % TOGETHER as u64) as usize)
}
