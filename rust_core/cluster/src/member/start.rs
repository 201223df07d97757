//! The first thing a member does: compare the end of its own log with the stream.

use super::types::{Action, Found, Recovered};
use super::{Alarm, Member, State};
use crate::batch::Batch;
use crate::history::{History, Position};

/// What is being asked.
pub(super) struct Starting {
    recovered: Recovered,
    pub(super) ask_at: u64,
}

impl Starting {
    /// The last message that the own log knows of.
    fn end(&self) -> Position {
        self.recovered.uncertain.unwrap_or(self.recovered.certain)
    }
}

impl Member {
    pub(super) fn start(&mut self, recovered: Recovered, now: u64) {
        if let Some(uncertain) = recovered.uncertain {
            assert_eq!(uncertain.sequence, recovered.certain.sequence + 1, "one append at a time");
        }
        let starting = Starting { recovered, ask_at: now };
        if starting.end().sequence == 0 {
            return self.begin(now);
        }
        self.state = State::Starting(starting);
        self.ask_again(now);
    }

    pub(super) fn ask_again(&mut self, now: u64) {
        let State::Starting(starting) = &mut self.state else { return };
        starting.ask_at = now + self.config.answer_ms;
        let sequence = starting.end().sequence;
        self.actions.push_back(Action::LookUp { sequence });
    }

    pub(super) fn found_at_start(&mut self, sequence: u64, found: Found, now: u64) {
        let State::Starting(starting) = &self.state else { return };
        let Recovered { certain, uncertain } = starting.recovered;
        if sequence != starting.end().sequence {
            return;
        }
        match (found, uncertain) {
            (Found::Unknown, _) => {}
            (Found::Message(message), None) if ends_at(certain, &message) => self.begin(now),
            // The stream has lost what it had, and somebody has written in its place.
            (Found::Message(_), None) => self.stop(Alarm::Differs { sequence }),
            (Found::Message(message), Some(uncertain)) if ends_at(uncertain, &message) => {
                self.history = History::behind(uncertain);
                self.begin(now);
            }
            // Another's message stands there, or none: ours did not happen. It may yet; then it is delivered.
            (Found::Message(_), Some(_)) => self.cut(certain, now),
            (Found::Nothing { first, .. }, _) if first > certain.sequence + 1 => {
                self.stop(Alarm::Missed { needed: certain.sequence + 1, first });
            }
            // The last one taken is gone because everybody has it.
            (Found::Nothing { first, .. }, None) if first > sequence => self.begin(now),
            (Found::Nothing { last, .. }, _) if last < certain.sequence => {
                self.check_end(last, now)
            }
            (Found::Nothing { .. }, _) => self.cut(certain, now),
        }
    }

    fn cut(&mut self, keep: Position, now: u64) {
        self.actions.push_back(Action::StepDown { keep });
        self.begin(now);
    }

    fn begin(&mut self, now: u64) {
        self.tail(now);
        self.follow(now);
    }
}

/// Whether `message` is the one that `position` lies behind.
fn ends_at(position: Position, message: &[u8]) -> bool {
    Batch::decode(message).is_ok_and(|batch| batch.before.then(message) == position.digest)
}
