//! Members of one feed, and whose turn it is.
//!
//! Owns the order: those that may have room take turns, in a ring for each choice of levels; the others are passed over
//! until they have room. Nothing here walks over all members, of which there may be many thousands. Must not know what
//! they are given.

use std::collections::VecDeque;

use hashbrown::HashMap;
use smallvec::SmallVec;

use crate::front::{Outlet, Room};
use crate::mailbox::LEVELS;
use crate::protocol::Dialect;
use crate::store::{Held, LevelSet};

/// Members that are found without a map.
const FEW: usize = 8;

/// What a member waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It may have room.
    Ready,
    /// It is known to its connection as one that waits for room.
    Thirsty,
    /// It takes nothing more, and its end is on the way.
    Over,
}

/// A subscription that is fed.
#[derive(Debug)]
pub(super) struct Member {
    pub outlet: Outlet,
    pub dialect: Dialect,
    /// The levels it asked for, and those of them that it may have.
    pub asked: LevelSet,
    pub levels: LevelSet,
    /// What it was given of a queue group.
    pub held: Held,
    pub state: State,
    /// How much it may still be given in this turn.
    pub room: Option<(u64, Room)>,
    /// Its place in the ring of its levels: who has the lowest has waited longest.
    ticket: u64,
}

impl Member {
    pub fn new(outlet: Outlet, dialect: Dialect, asked: LevelSet, levels: LevelSet) -> Member {
        let (held, state) = (Held::default(), State::Ready);
        Member { outlet, dialect, asked, levels, held, state, room: None, ticket: 0 }
    }
}

/// The members of a feed.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// In no order.
    list: SmallVec<[Member; 1]>,
    /// How many of them may have room.
    ready: usize,
    /// Those, by the levels they want.
    rings: SmallVec<[Ring; 1]>,
    /// The last ticket that was given.
    tickets: u64,
    /// How many of those want each level.
    wants: [u32; LEVELS],
    /// Where each reader is, if there are many.
    places: Option<Box<HashMap<u64, usize, foldhash::fast::RandomState>>>,
    /// How many entries of rings were looked at.
    looked: u64,
}

/// Members that want the same levels, with their tickets, in turn. An entry whose ticket is no longer that of its member
/// counts for nothing.
#[derive(Debug, Default)]
struct Ring {
    levels: LevelSet,
    turns: VecDeque<(u64, u64)>,
    /// How many entries count.
    ready: usize,
}

impl Members {
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Member> {
        self.list.iter()
    }

    /// How many may have room.
    pub fn ready(&self) -> usize {
        self.ready
    }

    /// Whether somebody may have room.
    pub fn is_ready(&self) -> bool {
        self.ready > 0
    }

    /// The levels that somebody wants who may have room.
    pub fn wanted(&self) -> LevelSet {
        LevelSet::ALL.filter(|level| self.wants[level.index()] > 0)
    }

    pub fn get(&self, reader: u64) -> Option<&Member> {
        self.list.get(self.place(reader)?)
    }

    pub fn get_mut(&mut self, reader: u64) -> Option<&mut Member> {
        let at = self.place(reader)?;
        self.list.get_mut(at)
    }

    fn place(&self, reader: u64) -> Option<usize> {
        match &self.places {
            Some(places) => places.get(&reader).copied(),
            None => self.list.iter().position(|member| member.outlet.reader == reader),
        }
    }

    /// Adds one that may have room.
    pub fn add(&mut self, member: Member) {
        let (at, reader) = (self.list.len(), member.outlet.reader);
        self.list.push(member);
        if let Some(places) = &mut self.places {
            places.insert(reader, at);
        } else if self.list.len() > FEW {
            let place = |(at, member): (usize, &Member)| (member.outlet.reader, at);
            self.places = Some(Box::new(self.list.iter().enumerate().map(place).collect()));
        }
        self.line_up(at);
    }

    pub fn remove(&mut self, reader: u64) -> Option<Member> {
        self.set_state(reader, State::Over);
        let at = self.place(reader)?;
        let member = self.list.swap_remove(at);
        if let Some(places) = &mut self.places {
            places.remove(&reader);
            if let Some(moved) = self.list.get(at) {
                places.insert(moved.outlet.reader, at);
            }
        }
        Some(member)
    }

    /// All of them, in no order.
    pub fn into_list(self) -> impl Iterator<Item = Member> {
        self.list.into_iter()
    }

    /// A member may have other levels than before.
    pub fn set_levels(&mut self, reader: u64, levels: LevelSet) {
        let Some(at) = self.place(reader) else { return };
        let is_ready = self.list[at].state == State::Ready;
        if is_ready {
            self.step_out(at);
        }
        self.list[at].levels = levels;
        if is_ready {
            self.line_up(at);
        }
    }

    pub fn set_state(&mut self, reader: u64, state: State) {
        let Some(at) = self.place(reader) else { return };
        let before = std::mem::replace(&mut self.list[at].state, state);
        match (before == State::Ready, state == State::Ready) {
            (true, false) => self.step_out(at),
            (false, true) => self.line_up(at),
            _ => {}
        }
    }

    /// The member is the last of its ring from now on.
    fn line_up(&mut self, at: usize) {
        self.tickets += 1;
        let member = &mut self.list[at];
        member.ticket = self.tickets;
        let (levels, entry) = (member.levels, (self.tickets, member.outlet.reader));
        let ring = match self.rings.iter().position(|ring| ring.levels == levels) {
            Some(found) => &mut self.rings[found],
            None => {
                // Permissions can be changed for ever: rings that are empty do not gather.
                self.rings.retain(|ring| ring.ready > 0);
                self.rings.push(Ring { levels, ..Ring::default() });
                let last = self.rings.len() - 1;
                &mut self.rings[last]
            }
        };
        ring.turns.push_back(entry);
        ring.ready += 1;
        self.ready += 1;
        self.count(levels, 1);
    }

    /// The member has no place in its ring.
    fn step_out(&mut self, at: usize) {
        let levels = self.list[at].levels;
        self.list[at].ticket = 0;
        self.ready -= 1;
        self.count(levels, -1);
        let Some(found) = self.rings.iter().position(|ring| ring.levels == levels) else { return };
        self.rings[found].ready -= 1;
        let Ring { turns, ready, .. } = &self.rings[found];
        // Entries that count for nothing do not gather either.
        if turns.len() > 2 * ready + 16 {
            let mut turns = std::mem::take(&mut self.rings[found].turns);
            turns.retain(|entry| self.counts(*entry));
            self.rings[found].turns = turns;
        }
    }

    fn counts(&self, (ticket, reader): (u64, u64)) -> bool {
        self.get(reader).is_some_and(|member| member.ticket == ticket)
    }

    /// The one that wants some of these levels, may have room, and has waited longest.
    pub fn candidate(&mut self, levels: LevelSet) -> Option<u64> {
        let mut first: Option<(u64, u64)> = None;
        for at in 0..self.rings.len() {
            if self.rings[at].levels.both(levels).is_empty() {
                continue;
            }
            while let Some(&entry) = self.rings[at].turns.front() {
                self.looked += 1;
                if self.counts(entry) {
                    first = Some(first.map_or(entry, |first| first.min(entry)));
                    break;
                }
                self.rings[at].turns.pop_front();
            }
        }
        first.map(|(_, reader)| reader)
    }

    /// It was given something: others come before it now.
    pub fn pass(&mut self, reader: u64) {
        if let Some(at) = self.place(reader).filter(|&at| self.list[at].state == State::Ready) {
            self.step_out(at);
            self.line_up(at);
        }
    }

    /// How many entries were looked at since this was last asked.
    pub fn take_looked(&mut self) -> u64 {
        std::mem::take(&mut self.looked)
    }

    fn count(&mut self, levels: LevelSet, by: i32) {
        for (index, wants) in self.wants.iter_mut().enumerate() {
            if levels.has_index(index) {
                *wants = wants.wrapping_add_signed(by);
            }
        }
    }

    /// Panics unless rings, counts and places agree. For tests.
    pub fn check_invariants(&self) {
        let mut wants = [0; LEVELS];
        let mut ready = 0;
        for (at, member) in self.list.iter().enumerate() {
            assert_eq!(self.place(member.outlet.reader), Some(at), "place of a reader");
            let is_ready = member.state == State::Ready;
            assert_eq!(is_ready, member.ticket > 0, "a member in turn");
            ready += usize::from(is_ready);
            for (index, wants) in wants.iter_mut().enumerate() {
                *wants += u32::from(is_ready && member.levels.has_index(index));
            }
        }
        assert_eq!((wants, ready), (self.wants, self.ready), "levels that are wanted");
        for ring in &self.rings {
            let of_ring = |&entry: &(u64, u64)| {
                let member = self.get(entry.1).filter(|member| member.ticket == entry.0);
                member.inspect(|member| assert_eq!(member.levels, ring.levels, "ring")).is_some()
            };
            let count = ring.turns.iter().filter(|entry| of_ring(entry)).count();
            assert_eq!(count, ring.ready, "entries that count");
            assert!(ring.turns.iter().is_sorted(), "the order of a ring");
        }
        let in_rings: usize = self.rings.iter().map(|ring| ring.ready).sum();
        assert_eq!(in_rings, self.ready, "members in turn");
        let places = self.places.as_ref().map_or(self.list.len(), |places| places.len());
        assert_eq!(places, self.list.len(), "places of members");
    }
}
