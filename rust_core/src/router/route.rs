//! The last lookup, remembered: most subjects are that of the message before, or differ from it in a
//! last token that no subscription names, as the reply subjects of one client do.

use memchr::{memchr, memrchr};

use super::{Matches, Router};

/// How much of the last lookup was good for the next subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hit {
    /// It is the same subject.
    Same,
    /// Only the last token differs, and to nobody.
    Alike,
    /// Nothing.
    None,
}

/// A subject and the interests it meets.
#[derive(Debug, Default)]
pub struct Route {
    generation: Option<u64>,
    subject: Vec<u8>,
    /// Up to here another subject must be the same to meet the same interests, if its last token
    /// begins here; 0 if it must be the same altogether.
    stem: usize,
    matches: Matches,
}

impl Route {
    /// The interests that the subject meets.
    pub fn matches(&self) -> &Matches {
        &self.matches
    }
}

impl Router {
    /// Sees to it that the route is the one of `subject`.
    pub fn find_route(&self, route: &mut Route, subject: &[u8]) -> Hit {
        if route.generation == Some(self.generation()) {
            if route.subject == subject {
                return Hit::Same;
            }
            if self.is_alike(route, subject) {
                route.subject.truncate(route.stem);
                route.subject.extend_from_slice(&subject[route.stem..]);
                return Hit::Alike;
            }
        }
        route.generation = Some(self.generation());
        route.subject.clear();
        route.subject.extend_from_slice(subject);
        route.matches.clear();
        let exact = self.find(subject).copied();
        route.matches.extend(exact);
        let named = self.patterns.matches(subject, &mut route.matches);
        let stem = memrchr(b'.', subject).map_or(0, |dot| dot + 1);
        route.stem = if named || exact.is_some() { 0 } else { stem };
        Hit::None
    }

    fn is_alike(&self, route: &Route, subject: &[u8]) -> bool {
        let stem = route.stem;
        stem > 0
            && subject.len() > stem
            && subject[..stem] == route.subject[..stem]
            && memchr(b'.', &subject[stem..]).is_none()
            && self.find(subject).is_none()
    }
}
