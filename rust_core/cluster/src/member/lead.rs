//! A leader's appends: what is under way, what came of it, and until when reads are current.

use std::collections::VecDeque;
use std::sync::Arc;

use super::types::{Action, Answer, Config, Found, NotLeading, Proposed};
use super::{Alarm, Member, State};
use crate::batch::{Batch, Content, Record};
use crate::history::Position;

/// An append whose outcome is not known.
pub(super) struct Appending {
    id: String,
    expected: u64,
    pub(super) message: Arc<[u8]>,
    pub(super) sent_at: u64,
    pub(super) resend_at: u64,
    /// The stream refused it: what stands in its place is being looked up.
    is_refused: bool,
}

impl Appending {
    pub(super) fn new(batch: &Batch, expected: u64, now: u64, answer_ms: u64) -> Appending {
        Appending {
            id: batch.id(),
            expected,
            message: batch.encode().into(),
            sent_at: now,
            resend_at: now + answer_ms,
            is_refused: false,
        }
    }

    pub(super) fn action(&self) -> Action {
        if self.is_refused {
            return Action::LookUp { sequence: self.expected + 1 };
        }
        Action::Append {
            id: self.id.clone(),
            expected: self.expected,
            message: Arc::clone(&self.message),
        }
    }
}

/// What a leader keeps.
pub(super) struct Leading {
    /// Oldest first; each expects the one before it.
    pub(super) under_way: VecDeque<Appending>,
    /// Behind the last batch that happened.
    pub(super) committed: Position,
    /// Behind the last batch under way.
    end: Position,
    /// When the newest append that happened was first sent.
    pub(super) acknowledged_at: u64,
    /// When the last append was sent.
    sent_at: u64,
    pub(super) has_yielded: bool,
}

impl Leading {
    pub(super) fn new(position: Position, sent_at: u64) -> Leading {
        Leading {
            under_way: VecDeque::new(),
            committed: position,
            end: position,
            acknowledged_at: sent_at,
            sent_at,
            has_yielded: false,
        }
    }

    pub(super) fn deadline(&self, config: &Config) -> u64 {
        match self.under_way.front() {
            Some(oldest) => oldest.resend_at,
            None => self.sent_at + config.heartbeat_ms,
        }
    }

    pub(super) fn wants_heartbeat(&self, config: &Config, now: u64) -> bool {
        self.under_way.is_empty() && !self.has_yielded && now >= self.sent_at + config.heartbeat_ms
    }

    /// Sends again what has waited too long, and all behind it: the stream takes them in order only.
    pub(super) fn tick(&mut self, config: &Config, now: u64, actions: &mut VecDeque<Action>) {
        if self.under_way.front().is_some_and(|oldest| oldest.resend_at <= now) {
            for append in &mut self.under_way {
                append.resend_at = now + config.answer_ms;
                actions.push_back(append.action());
            }
        }
    }
}

impl Member {
    /// Whether [`Member::propose`] would take something.
    pub fn has_room(&self) -> bool {
        matches!(&self.state, State::Leading(leading)
            if !leading.has_yielded && leading.under_way.len() < self.config.window)
    }

    /// Whether what this node holds is all that was ever acknowledged: ask right before a read is answered.
    pub fn may_read(&self, now: u64) -> bool {
        now < self.reads_until()
    }

    /// Until when [`Member::may_read`] holds, unless more is acknowledged; 0 for not at all.
    pub fn reads_until(&self) -> u64 {
        let lease = self.config.lease_ms.saturating_sub(self.config.margin_ms);
        match &self.state {
            State::Leading(leading) if !leading.has_yielded => leading.acknowledged_at + lease,
            _ => 0,
        }
    }

    /// Of a leader: when the newest append that the stream has answered was sent.
    pub fn answered_at(&self) -> Option<u64> {
        match &self.state {
            State::Leading(leading) => Some(leading.acknowledged_at),
            _ => None,
        }
    }

    /// Sends records into the stream. They have happened when [`Action::Committed`] names their sequence.
    pub fn propose(&mut self, records: Vec<Record>, now: u64) -> Result<Proposed, NotLeading> {
        let before = match &self.state {
            State::Leading(leading) if !leading.has_yielded => leading.end,
            _ => return Err(NotLeading::Elsewhere),
        };
        if !self.has_room() {
            return Err(NotLeading::Full);
        }
        self.append(Content::Records(records), now);
        match &self.state {
            State::Leading(leading) => Ok(Proposed { before, position: leading.end }),
            _ => unreachable!("an append does not end the lead"),
        }
    }

    /// Gives the lead to `node`: everything before is in the stream, and nothing comes after.
    pub fn yield_to(&mut self, node: u32, now: u64) -> Result<(), NotLeading> {
        match &self.state {
            State::Leading(leading) if leading.has_yielded => return Err(NotLeading::Elsewhere),
            State::Leading(leading) if !leading.under_way.is_empty() => {
                return Err(NotLeading::Full);
            }
            State::Leading(_) => {}
            _ => return Err(NotLeading::Elsewhere),
        }
        self.append(Content::Yield(node), now);
        if let State::Leading(leading) = &mut self.state {
            // From now on another may lead at any moment.
            leading.has_yielded = true;
        }
        Ok(())
    }

    /// Sends a batch behind all that is under way. Only a leader may.
    pub(super) fn append(&mut self, content: Content, now: u64) {
        let State::Leading(leading) = &self.state else {
            unreachable!("only a leader appends");
        };
        let (term, end) = (leading.end.term, leading.end);
        let append = self.new_append(content, term, end, now);
        self.actions.push_back(append.action());
        if let State::Leading(leading) = &mut self.state {
            leading.end.sequence += 1;
            leading.end.digest = leading.end.digest.then(&append.message);
            leading.sent_at = now;
            leading.under_way.push_back(append);
        }
    }

    /// The stream answered an append.
    pub fn answered(&mut self, id: &str, answer: Answer, now: u64) {
        let known = self.position().sequence;
        let Some(append) = self.oldest() else { return };
        if append.id != id {
            return;
        }
        match answer {
            Answer::Stored { sequence } if sequence == append.expected + 1 => {
                let message = Arc::clone(&append.message);
                // An earlier message that nobody has delivered yet: the tail brings both, in order.
                if sequence == known + 1 {
                    self.take(sequence, &message, now);
                }
            }
            Answer::Stored { sequence } => self.stop(Alarm::Differs { sequence }),
            Answer::WrongLast => {
                append.is_refused = true;
                append.resend_at = now;
                self.look_up_oldest(now);
            }
            // Sent again in time.
            Answer::Unknown => {}
        }
    }

    /// The stream's leader said what it has at a sequence.
    pub fn looked_up(&mut self, sequence: u64, found: Found, now: u64) {
        if let State::Starting(_) = self.state {
            return self.found_at_start(sequence, found, now);
        }
        let known = self.position().sequence;
        match found {
            // Whose it is, and what follows from it, is told by the message.
            Found::Message(message) if sequence == known + 1 => {
                self.take(sequence, &message, now);
                // What was not delivered until now is not alone.
                if let State::Following { .. } = self.state {
                    self.tail(now);
                }
            }
            Found::Message(_) | Found::Unknown => {}
            Found::Nothing { first, .. } if first > known + 1 => self.missed(first),
            Found::Nothing { last, .. } => {
                self.check_end(last, now);
                // The place is free: whoever refused had not caught up.
                if let Some(append) = self.oldest()
                    && append.expected + 1 == sequence
                    && last <= append.expected
                {
                    append.is_refused = false;
                }
            }
        }
    }

    /// Alarms if the stream goes on ending before what this node knows to be in it.
    pub(super) fn check_end(&mut self, last: u64, now: u64) {
        let known = self.position().sequence;
        if last >= known {
            self.behind_since = None;
            return;
        }
        // A new leader of the stream may not have read all of its own log yet.
        let since = *self.behind_since.get_or_insert(now);
        if now >= since + 2 * self.config.lease_ms {
            self.stop(Alarm::Forgotten { last, known });
        }
    }

    fn oldest(&mut self) -> Option<&mut Appending> {
        match &mut self.state {
            State::Claiming(claim) => Some(claim),
            State::Leading(leading) => leading.under_way.front_mut(),
            _ => None,
        }
    }

    fn look_up_oldest(&mut self, now: u64) {
        let answer_ms = self.config.answer_ms;
        let Some(append) = self.oldest() else { return };
        append.resend_at = now + answer_ms;
        let action = append.action();
        self.actions.push_back(action);
    }
}
