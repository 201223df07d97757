//! Positions of readers in a mailbox, besides its inbox.
//!
//! Owns a cursor for each level, and as runs, since there may be millions, which messages are to be given again and which
//! somebody holds. Must not know mailboxes.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::mailbox::{LEVELS, Level};

/// Consecutive ids of one level.
pub type Run = (Level, u64, u64);

/// How far somebody has read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Position {
    /// Per level, the first `msg_id` not yet given.
    pub cursors: [u64; LEVELS],
    /// Messages before that to be given again: where each run ends, by its level and where it begins. No two overlap.
    again: BTreeMap<(Level, u64), u64>,
}

impl Position {
    /// A message was given.
    pub fn pass(&mut self, level: Level, msg_id: u64) {
        let cursor = &mut self.cursors[level.index()];
        if msg_id >= *cursor {
            *cursor = msg_id + 1;
            return;
        }
        let before = self.again.range((level, 0)..=(level, msg_id)).next_back();
        let Some((&(_, start), &end)) = before.filter(|(_, end)| msg_id < **end) else { return };
        self.again.remove(&(level, start));
        for (start, end) in [(start, msg_id), (msg_id + 1, end)] {
            if start < end {
                self.again.insert((level, start), end);
            }
        }
    }

    /// Messages before the cursor are to be given again; they were not among those.
    pub fn give_again(&mut self, (level, mut start, mut end): Run) {
        let before = self.again.range((level, 0)..(level, start)).next_back();
        if let Some((&(_, first), &to)) = before
            && to == start
        {
            start = first;
        }
        if let Some(to) = self.again.remove(&(level, end)) {
            end = to;
        }
        self.again.insert((level, start), end);
    }

    /// The runs of a level that are to be given again.
    pub fn again_at(&self, level: Level) -> impl Iterator<Item = Range<u64>> + '_ {
        let runs = self.again.range((level, 0)..=(level, u64::MAX));
        runs.map(|(&(_, start), &end)| start..end)
    }

    /// Takes messages that have left the mailbox out of the front of each level, where `next` knows the first one that is
    /// there from an id on. It takes out `most` runs at once; false if there may be more.
    pub fn trim(&mut self, most: usize, next: impl Fn(Level, u64) -> Option<u64>) -> bool {
        let mut left = most;
        for level in Level::all() {
            loop {
                let Some(run) = self.again_at(level).next() else { break };
                let first = next(level, run.start).filter(|first| run.contains(first));
                if first == Some(run.start) {
                    break;
                }
                if left == 0 {
                    return false;
                }
                left -= 1;
                self.again.remove(&(level, run.start));
                if let Some(first) = first {
                    self.again.insert((level, first), run.end);
                    break;
                }
            }
        }
        true
    }

    /// How many runs are to be given again.
    pub fn runs(&self) -> usize {
        self.again.len()
    }
}

/// Messages that somebody was given and has not deleted, as runs of one level. Those that have left the mailbox are taken out
/// on the way: with each new run three older ones are looked at.
#[derive(Debug, Default)]
pub struct Held {
    runs: Vec<Run>,
    /// The run that grows.
    open: Option<Run>,
    /// Which of the others is looked at next.
    sweep: usize,
}

impl Held {
    /// Adds a message, where `next` knows the first of a level that is still in the mailbox from an id on.
    pub fn add(&mut self, level: Level, msg_id: u64, next: impl Fn(Level, u64) -> Option<u64>) {
        match &mut self.open {
            Some((of, _, end)) if *of == level && *end == msg_id => *end += 1,
            open => {
                if let Some(run) = open.replace((level, msg_id, msg_id + 1)) {
                    self.runs.push(run);
                }
                self.sweep(next);
            }
        }
    }

    fn sweep(&mut self, next: impl Fn(Level, u64) -> Option<u64>) {
        // With two, one is removed and one that is new is passed, for ever.
        for _ in 0..3 {
            if self.sweep >= self.runs.len() {
                self.sweep = 0;
            }
            let Some((level, start, end)) = self.runs.get_mut(self.sweep) else { return };
            match next(*level, *start).filter(|first| first < end) {
                Some(first) => {
                    *start = first;
                    self.sweep += 1;
                }
                None => drop(self.runs.swap_remove(self.sweep)),
            }
        }
    }

    /// How many runs there are.
    pub fn runs(&self) -> usize {
        self.runs.len() + usize::from(self.open.is_some())
    }

    /// All of them.
    pub fn into_runs(self) -> Vec<Run> {
        let mut runs = self.runs;
        runs.extend(self.open);
        runs
    }
}
