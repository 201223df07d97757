//! One node's part in a partition: follows the stream, claims it when its leader falls silent, and leads.
//!
//! Owns the role and everything that may still turn out either way. A message of the stream is taken once, in order,
//! by [`History`]'s rule; the own batches of a leader are taken when they are known to be in the stream. So
//! [`Member::position`] never holds anything that could be undone.

mod lead;
mod start;
mod types;

use std::collections::VecDeque;

use crate::batch::{Batch, Content};
use crate::chance::Chance;
use crate::history::{Differs, History, Position};

use lead::{Appending, Leading};
use start::Starting;
pub use types::{Action, Alarm, Answer, Config, Found, NotLeading, Proposed, Recovered, Role};

/// What the member is doing.
enum State {
    /// Finds out whether the stream has what its own log ends with.
    Starting(Starting),
    /// Applies what others write; claims when nothing was heard until then.
    Following { patient_until: u64 },
    /// Has asked to lead, and does not know the answer.
    Claiming(Appending),
    /// Writes.
    Leading(Leading),
    /// Does nothing more.
    Stopped,
}

/// One node's part in a partition.
pub struct Member {
    config: Config,
    chance: Chance,
    history: History,
    state: State,
    /// Counts the batches of this incarnation.
    number: u64,
    /// Since when the stream has seemed to end before what this node knows of it.
    behind_since: Option<u64>,
    /// Until then the stream was asked to deliver what is missing, and may yet do so.
    tail_again_at: u64,
    actions: VecDeque<Action>,
}

impl Member {
    /// Begins with what the node's own log holds.
    pub fn new(config: Config, recovered: Recovered, now: u64) -> Member {
        let mut member = Member {
            chance: Chance::new(config.seed),
            history: History::behind(recovered.certain),
            state: State::Stopped,
            number: 0,
            behind_since: None,
            tail_again_at: 0,
            actions: VecDeque::new(),
            config,
        };
        member.start(recovered, now);
        member
    }

    /// The next thing to do, in order.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Where the stream is taken up to: nothing of it can be undone.
    pub fn position(&self) -> Position {
        self.history.position()
    }

    /// What the member is doing.
    pub fn role(&self) -> Role {
        match &self.state {
            State::Starting(_) => Role::Starting,
            State::Following { .. } | State::Claiming(_) => Role::Following,
            State::Leading(_) => Role::Leading,
            State::Stopped => Role::Stopped,
        }
    }

    /// Whether it has asked to lead, and has no answer: others may take it for the leader by now.
    pub fn is_claiming(&self) -> bool {
        matches!(self.state, State::Claiming(_))
    }

    /// When [`Member::tick`] has something to do if nothing else happens.
    pub fn deadline(&self) -> Option<u64> {
        match &self.state {
            State::Starting(starting) => Some(starting.ask_at),
            State::Following { patient_until } => Some(*patient_until),
            State::Claiming(claim) => Some(claim.resend_at),
            State::Leading(leading) => Some(leading.deadline(&self.config)),
            State::Stopped => None,
        }
    }

    /// Does what is due.
    pub fn tick(&mut self, now: u64) {
        match &mut self.state {
            State::Starting(starting) if starting.ask_at <= now => self.ask_again(now),
            State::Following { patient_until } if *patient_until <= now => self.claim(now),
            State::Claiming(claim) if claim.resend_at <= now => {
                // Whoever led until now tries as well, and should win: it has no copy to make and no state to load.
                let wait = self.config.answer_ms + self.chance.below(self.config.spread_ms);
                claim.resend_at = now + wait;
                self.actions.push_back(claim.action());
            }
            State::Leading(leading) => leading.tick(&self.config, now, &mut self.actions),
            _ => {}
        }
        if matches!(&self.state, State::Leading(leading) if leading.wants_heartbeat(&self.config, now))
        {
            self.append(Content::Records(Vec::new()), now);
        }
    }

    /// The stream delivered a message.
    pub fn delivered(&mut self, sequence: u64, message: &[u8], now: u64) {
        if matches!(self.state, State::Starting(_) | State::Stopped) {
            return;
        }
        let taken = self.position().sequence;
        if sequence <= taken {
            return;
        }
        if sequence > taken + 1 {
            // Something was lost on the way here, or removed from the stream: who tails finds out which.
            if now >= self.tail_again_at {
                self.tail(now);
            }
            return;
        }
        self.take(sequence, message, now);
    }

    /// The stream has nothing left from `from` on up to `first`: this node was away for too long.
    pub fn missed(&mut self, first: u64) {
        if first > self.position().sequence + 1 {
            self.stop(Alarm::Missed { needed: self.position().sequence + 1, first });
        }
    }

    /// Takes the message behind the last one.
    fn take(&mut self, sequence: u64, message: &[u8], now: u64) {
        let batch = match Batch::decode(message) {
            Ok(batch) => batch,
            Err(error) => return self.stop(Alarm::Unreadable { sequence, error }),
        };
        if (batch.cluster, batch.generation) != (self.config.cluster, self.config.generation) {
            return self.stop(Alarm::OtherCluster { sequence });
        }
        let own = self.is_under_way(&batch, message);
        let outcome = match self.config.checks_terms {
            true => self.history.take(sequence, &batch, message),
            false => self.history.take_any_term(sequence, &batch, message),
        };
        self.behind_since = None;
        match outcome {
            Err(Differs) => self.stop(Alarm::Differs { sequence }),
            Ok(()) if own => self.happened(sequence, now),
            Ok(()) => self.others_wrote(batch, now),
        }
    }

    /// Whether it is the oldest append of this node that may be in the stream.
    fn is_under_way(&self, batch: &Batch, message: &[u8]) -> bool {
        let oldest = match &self.state {
            State::Claiming(claim) => Some(claim),
            State::Leading(leading) => leading.under_way.front(),
            _ => None,
        };
        oldest
            .is_some_and(|append| batch.writer == self.config.writer && *append.message == *message)
    }

    /// The oldest append is in the stream, and counts.
    fn happened(&mut self, sequence: u64, now: u64) {
        let position = self.position();
        match std::mem::replace(&mut self.state, State::Stopped) {
            State::Claiming(claim) => {
                self.actions.push_back(Action::Lead { position });
                self.state = State::Leading(Leading::new(position, claim.sent_at));
            }
            State::Leading(mut leading) => {
                let done = leading.under_way.pop_front();
                let sent_at = done.map_or(0, |append| append.sent_at);
                leading.acknowledged_at = leading.acknowledged_at.max(sent_at);
                leading.committed = position;
                self.actions.push_back(Action::Committed { sequence });
                if leading.has_yielded && leading.under_way.is_empty() {
                    self.actions.push_back(Action::Follow);
                    self.follow(now);
                } else {
                    self.state = State::Leading(leading);
                }
            }
            _ => unreachable!("only who claims or leads has something under way"),
        }
    }

    /// Somebody else's message stands where the own next one would have stood.
    fn others_wrote(&mut self, batch: Batch, now: u64) {
        if let State::Leading(leading) = &self.state {
            // What is under way names a sequence that is taken: none of it can happen any more.
            let keep = leading.committed;
            let is_clean = leading.under_way.is_empty();
            self.actions.push_back(if is_clean {
                Action::Follow
            } else {
                Action::StepDown { keep }
            });
        }
        self.follow(now);
        let claims_at_once = batch.content == Content::Yield(self.config.writer.node);
        let position = self.position();
        self.actions.push_back(Action::Apply { batch, position });
        if claims_at_once {
            self.claim(now);
        }
    }

    fn tail(&mut self, now: u64) {
        self.tail_again_at = now + self.config.answer_ms;
        self.actions.push_back(Action::Tail { from: self.position().sequence + 1 });
    }

    fn follow(&mut self, now: u64) {
        let wait = self.config.lease_ms + self.chance.below(self.config.spread_ms);
        self.state = State::Following { patient_until: now + wait };
    }

    fn claim(&mut self, now: u64) {
        let term = self.position().term + 1;
        let claim = self.new_append(Content::Claim, term, self.position(), now);
        self.actions.push_back(claim.action());
        self.state = State::Claiming(claim);
    }

    fn new_append(&mut self, content: Content, term: u64, behind: Position, now: u64) -> Appending {
        self.number += 1;
        let batch = Batch {
            cluster: self.config.cluster,
            generation: self.config.generation,
            term,
            writer: self.config.writer,
            number: self.number,
            before: behind.digest,
            content,
        };
        Appending::new(&batch, behind.sequence, now, self.config.answer_ms)
    }

    fn stop(&mut self, alarm: Alarm) {
        self.state = State::Stopped;
        self.actions.push_back(Action::Stop(alarm));
    }
}
