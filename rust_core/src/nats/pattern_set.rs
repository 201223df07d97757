//! Subjects of which no two may have a message in common.
//!
//! Those without wildcards are found by their text; only with a wildcard on either side two are compared, and not more
//! often than takes a moment: whoever names many of them is refused.

use hashbrown::HashSet;

use super::{has_wildcard, overlaps};

/// Most comparisons of one set.
const MOST_COMPARED: usize = 1_000_000;

/// Whether a subject has messages in common with those of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overlap<'a> {
    /// With none of them.
    None,
    /// With this one.
    With(&'a str),
    /// It would take too long to say.
    TooMany,
}

/// A set of subjects.
#[derive(Debug, Default)]
pub struct PatternSet<'a> {
    all: Vec<&'a str>,
    literals: HashSet<&'a str, foldhash::fast::RandomState>,
    wildcards: Vec<&'a str>,
    compared: usize,
}

impl<'a> PatternSet<'a> {
    /// These subjects; or one that overlaps with one before it, and how.
    pub fn of(subjects: impl IntoIterator<Item = &'a str>) -> Result<Self, (&'a str, Overlap<'a>)> {
        let mut set = PatternSet::default();
        for subject in subjects {
            match set.overlap(subject) {
                Overlap::None => set.add(subject),
                overlap => return Err((subject, overlap)),
            }
        }
        Ok(set)
    }

    fn add(&mut self, subject: &'a str) {
        self.all.push(subject);
        if has_wildcard(subject.as_bytes()) {
            self.wildcards.push(subject);
        } else {
            self.literals.insert(subject);
        }
    }

    /// Whether a subject has messages in common with one of these.
    pub fn overlap(&mut self, subject: &str) -> Overlap<'a> {
        let others = if has_wildcard(subject.as_bytes()) {
            &self.all
        } else if let Some(same) = self.literals.get(subject) {
            return Overlap::With(same);
        } else {
            &self.wildcards
        };
        self.compared += others.len();
        if self.compared > MOST_COMPARED {
            return Overlap::TooMany;
        }
        let overlapping = others.iter().find(|o| overlaps(o.as_bytes(), subject.as_bytes()));
        overlapping.map_or(Overlap::None, |other| Overlap::With(other))
    }
}
