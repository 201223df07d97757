//! Who is fed by one feed, and whose turn it is.
//!
//! Owns the order: those that may have room stand in front and take turns; the others are passed over until they have
//! room. Nothing here walks over all members, of which there may be many thousands. Must not know what they are given.

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::feed::Held;
use crate::front::{Outlet, Room};
use crate::mailbox::LEVELS;
use crate::protocol::Dialect;
use crate::store::LevelSet;

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
}

impl Member {
    pub fn new(outlet: Outlet, dialect: Dialect, asked: LevelSet, levels: LevelSet) -> Member {
        let (held, state) = (Held::default(), State::Ready);
        Member { outlet, dialect, asked, levels, held, state, room: None }
    }
}

/// The members of a feed.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// The first `ready` of them may have room.
    list: SmallVec<[Member; 1]>,
    ready: usize,
    /// Who of those is the next to be given something.
    next: usize,
    /// How many of those want each level.
    wants: [u32; LEVELS],
    /// Where each reader is, if there are many.
    places: Option<Box<HashMap<u64, usize, foldhash::fast::RandomState>>>,
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
        let (at, reader, levels) = (self.list.len(), member.outlet.reader, member.levels);
        self.list.push(member);
        if let Some(places) = &mut self.places {
            places.insert(reader, at);
        } else if self.list.len() > FEW {
            let place = |(at, member): (usize, &Member)| (member.outlet.reader, at);
            self.places = Some(Box::new(self.list.iter().enumerate().map(place).collect()));
        }
        self.swap(at, self.ready);
        self.ready += 1;
        self.count(levels, 1);
    }

    pub fn remove(&mut self, reader: u64) -> Option<Member> {
        self.set_state(reader, State::Over);
        let at = self.place(reader)?;
        self.swap(at, self.list.len() - 1);
        if let Some(places) = &mut self.places {
            places.remove(&reader);
        }
        self.list.pop()
    }

    /// All of them, in no order.
    pub fn into_list(self) -> impl Iterator<Item = Member> {
        self.list.into_iter()
    }

    /// A member may have other levels than before.
    pub fn set_levels(&mut self, reader: u64, levels: LevelSet) {
        let Some(member) = self.get_mut(reader) else { return };
        let before = std::mem::replace(&mut member.levels, levels);
        if member.state == State::Ready {
            self.count(before, -1);
            self.count(levels, 1);
        }
    }

    pub fn set_state(&mut self, reader: u64, state: State) {
        let Some(at) = self.place(reader) else { return };
        let member = &mut self.list[at];
        let levels = member.levels;
        let before = std::mem::replace(&mut member.state, state);
        match (before == State::Ready, state == State::Ready) {
            (true, false) => {
                self.ready -= 1;
                self.swap(at, self.ready);
                self.count(levels, -1);
            }
            (false, true) => {
                self.swap(at, self.ready);
                self.ready += 1;
                self.count(levels, 1);
            }
            _ => {}
        }
    }

    /// The next that may have room and wants one of these levels.
    pub fn candidate(&self, levels: LevelSet) -> Option<u64> {
        let at = (0..self.ready).map(|step| (self.next + step) % self.ready);
        let mut ready = at.map(|at| &self.list[at]);
        let found = ready.find(|member| !member.levels.both(levels).is_empty())?;
        Some(found.outlet.reader)
    }

    /// It was given something: others come before it now.
    pub fn pass(&mut self, reader: u64) {
        if let Some(at) = self.place(reader) {
            self.next = at + 1;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.list.swap(a, b);
        if let Some(places) = &mut self.places {
            for at in [a, b] {
                places.insert(self.list[at].outlet.reader, at);
            }
        }
    }

    fn count(&mut self, levels: LevelSet, by: i32) {
        for (index, wants) in self.wants.iter_mut().enumerate() {
            if levels.has_index(index) {
                *wants = wants.wrapping_add_signed(by);
            }
        }
    }

    /// Panics unless order, counts and places agree. For tests.
    pub fn check_invariants(&self) {
        let mut wants = [0; LEVELS];
        for (at, member) in self.list.iter().enumerate() {
            assert_eq!(member.state == State::Ready, at < self.ready, "place of a member");
            assert_eq!(self.place(member.outlet.reader), Some(at), "place of a reader");
            for (index, wants) in wants.iter_mut().enumerate() {
                *wants += u32::from(at < self.ready && member.levels.has_index(index));
            }
        }
        assert_eq!(wants, self.wants, "levels that are wanted");
        let places = self.places.as_ref().map_or(self.list.len(), |places| places.len());
        assert_eq!(places, self.list.len(), "places of members");
    }
}
