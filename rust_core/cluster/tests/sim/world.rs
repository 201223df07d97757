//! Three nodes, a stream, clients, and accidents, in simulated time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::sync::Arc;

use mq9_cluster::{Action, Answer, Found, Role};

use super::chance::Chance;
use super::ledger::{Broken, Ledger};
use super::node::{self, Node};
use super::stream::Stream;

const NODES: usize = 3;
/// Accidents happen until then; afterwards all must come together again.
const CALM_MS: u64 = 60_000;
const END_MS: u64 = 90_000;

/// The rules a run follows: one is left out where its absence shall be seen.
#[derive(Clone)]
pub struct Rules {
    pub stream_checks_sequence: bool,
    pub checks_terms: bool,
    pub window: usize,
    pub replies_early: bool,
    pub reads_need_lease: bool,
    pub cuts: bool,
    /// The stream loses acknowledged messages once.
    pub forgets: bool,
    /// What leaves the stream is not asked of nodes that are away.
    pub purges_blindly: bool,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            stream_checks_sequence: true,
            checks_terms: true,
            window: 1,
            replies_early: false,
            reads_need_lease: true,
            cuts: true,
            forgets: false,
            purges_blindly: false,
        }
    }
}

/// What happened in a run that held.
pub struct Summary {
    pub acknowledged: u64,
    pub terms: u64,
    pub reads: u64,
    pub purged: u64,
}

#[derive(Clone)]
pub(super) enum Event {
    Tick {
        node: usize,
    },
    /// Arrives at the stream.
    Append {
        node: usize,
        incarnation: u64,
        id: String,
        expected: u64,
        message: Arc<[u8]>,
    },
    LookUp {
        node: usize,
        incarnation: u64,
        sequence: u64,
    },
    /// Arrives at a node.
    Answered {
        node: usize,
        incarnation: u64,
        id: String,
        answer: Answer,
    },
    LookedUp {
        node: usize,
        incarnation: u64,
        sequence: u64,
        found: Found,
    },
    Delivered {
        node: usize,
        incarnation: u64,
        sequence: u64,
    },
    Client,
    Read,
    Sync {
        node: usize,
    },
    Accident,
    Purge,
    Start {
        node: usize,
    },
    Forget,
}

pub struct World {
    pub(super) now: u64,
    pub(super) chance: Chance,
    pub(super) rules: Rules,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    bodies: HashMap<u64, Event>,
    order: u64,
    pub(super) stream: Stream,
    /// The stream has no leader before this.
    pub(super) leaderless_until: u64,
    pub(super) nodes: Vec<Node>,
    incarnations: u64,
    next_op: u64,
    ledger: Ledger,
    reads: u64,
    pub(super) purged: u64,
    /// What was in the log of some node for ever when the stream forgot.
    known_for_ever: HashSet<u64>,
    /// Say what happens.
    is_told: bool,
}

impl World {
    pub fn new(seed: u64, rules: Rules) -> World {
        let mut chance = Chance::new(seed);
        let nodes = (0..NODES)
            .map(|index| Node::new(index, chance.between(960, 1041), chance.between(0, 100_000)))
            .collect();
        let memory_ms = if chance.one_in(2) { 120_000 } else { 5_000 };
        let mut world = World {
            now: 0,
            chance,
            rules,
            events: BinaryHeap::new(),
            bodies: HashMap::new(),
            order: 0,
            stream: Stream::new(memory_ms),
            leaderless_until: 0,
            nodes,
            incarnations: 0,
            next_op: 0,
            ledger: Ledger::default(),
            reads: 0,
            purged: 0,
            known_for_ever: HashSet::new(),
            is_told: std::env::var("MQ9_SEED").is_ok(),
        };
        for node in 0..NODES {
            world.at(0, Event::Start { node });
            world.at(50, Event::Sync { node });
        }
        world.at(3_500, Event::Client);
        world.at(3_500, Event::Read);
        world.at(6_000, Event::Accident);
        if !world.rules.forgets {
            // What is gone by right cannot be told there from what is forgotten.
            world.at(5_000, Event::Purge);
        }
        if world.rules.forgets {
            world.at(30_000, Event::Forget);
        }
        world
    }

    pub fn run(mut self) -> Result<Summary, Broken> {
        while let Some(Reverse((time, order))) = self.events.pop() {
            if time > END_MS {
                break;
            }
            self.now = time;
            let Some(event) = self.bodies.remove(&order) else { continue };
            match self.happen(event) {
                // A stream that forgets lets nodes differ until one of them notices.
                Err(Broken::Differs { .. } | Broken::StaleRead { .. }) if self.rules.forgets => {}
                outcome => outcome?,
            }
        }
        if self.rules.forgets {
            // Without a trace in any log nobody can notice: the last batch of a leader that stopped at once.
            let known = std::mem::take(&mut self.known_for_ever);
            self.ledger.acknowledged.retain(|op| known.contains(op));
        }
        self.check_end()
    }

    fn at(&mut self, time: u64, event: Event) {
        self.order += 1;
        self.events.push(Reverse((time, self.order)));
        self.bodies.insert(self.order, event);
    }

    pub(super) fn soon(&mut self, from: u64, to: u64, event: Event) {
        let wait = self.chance.between(from, to);
        self.at(self.now + wait, event);
    }

    fn is_calm(&self) -> bool {
        self.now >= CALM_MS
    }

    fn happen(&mut self, event: Event) -> Result<(), Broken> {
        match event {
            Event::Append { node, incarnation, id, expected, message } => {
                self.append(node, incarnation, id, expected, &message);
            }
            Event::LookUp { node, incarnation, sequence } => {
                if self.now < self.leaderless_until {
                    return Ok(());
                }
                let found = self.stream.look_up(sequence);
                self.send_to_node(node, Event::LookedUp { node, incarnation, sequence, found });
            }
            Event::Client => self.client()?,
            Event::Read => self.read()?,
            Event::Accident => self.accident(),
            Event::Purge => self.purge(),
            Event::Forget => {
                self.stream.forget(3);
                let last = self.stream.last();
                if self.is_told {
                    println!("{:>6} the stream ends at {last} again", self.now);
                }
                self.known_for_ever = self.nodes.iter().flat_map(Node::ops_for_ever).collect();
            }
            Event::Start { node } => {
                self.incarnations += 1;
                let now = self.now;
                self.nodes[node].start(self.incarnations, &self.rules, now);
                return self.act(node);
            }
            Event::Sync { node } => {
                if self.nodes[node].member.is_some() && self.now >= self.nodes[node].paused_until {
                    self.nodes[node].sync();
                    self.answer_clients(node)?;
                }
                self.soon(1, 30, Event::Sync { node });
            }
            Event::Tick { node }
            | Event::Answered { node, .. }
            | Event::LookedUp { node, .. }
            | Event::Delivered { node, .. } => return self.at_node(node, event),
        }
        Ok(())
    }

    /// Something reaches a node, now or when it moves again.
    fn at_node(&mut self, index: usize, event: Event) -> Result<(), Broken> {
        let node = &mut self.nodes[index];
        if self.now < node.paused_until {
            let until = node.paused_until;
            self.at(until, event);
            return Ok(());
        }
        let (clock, current) = (node.clock(self.now), node.incarnation);
        let Some(member) = &mut node.member else { return Ok(()) };
        match event {
            Event::Tick { .. } => member.tick(clock),
            Event::Answered { incarnation, id, answer, .. } if incarnation == current => {
                member.answered(&id, answer, clock);
            }
            Event::LookedUp { incarnation, sequence, found, .. } if incarnation == current => {
                member.looked_up(sequence, found, clock);
            }
            Event::Delivered { incarnation, sequence, .. } if incarnation == current => {
                if let Some(message) = self.stream.message(sequence) {
                    member.delivered(sequence, message, clock);
                }
            }
            _ => return Ok(()),
        }
        self.act(index)
    }

    /// Does what the member wants, and gives it what clients wait for.
    fn act(&mut self, index: usize) -> Result<(), Broken> {
        self.propose(index)?;
        while let Some(action) = self.nodes[index].member.as_mut().and_then(|m| m.next_action()) {
            self.carry_out(index, action)?;
            self.propose(index)?;
        }
        let node = &self.nodes[index];
        if let Some(deadline) = node.member.as_ref().and_then(|member| member.deadline()) {
            let when = node.when(deadline).max(self.now + 1);
            // One tick on its way is enough, as long as it comes in time.
            if node.tick_at <= self.now || when < node.tick_at {
                self.nodes[index].tick_at = when;
                self.at(when, Event::Tick { node: index });
            }
        }
        Ok(())
    }

    fn propose(&mut self, index: usize) -> Result<(), Broken> {
        let node = &mut self.nodes[index];
        let clock = node.clock(self.now);
        let Some(member) = &mut node.member else { return Ok(()) };
        if !member.has_room() || node.waiting.is_empty() {
            return Ok(());
        }
        let ops = std::mem::take(&mut node.waiting);
        if let Ok(proposed) = member.propose(node::records(&ops), clock) {
            node.write(proposed.position, ops.clone(), Some(proposed.before));
            if self.rules.replies_early {
                self.ledger.acknowledged.extend(ops);
            } else {
                let at = proposed.position;
                node.unanswered.push((at.sequence, at.term, ops));
            }
        }
        Ok(())
    }

    fn carry_out(&mut self, index: usize, action: Action) -> Result<(), Broken> {
        let incarnation = self.nodes[index].incarnation;
        if self.is_told {
            println!("{:>6} node {index}.{incarnation}: {}", self.now, told(&action));
        }
        match action {
            Action::Append { id, expected, message } => {
                let event = Event::Append { node: index, incarnation, id, expected, message };
                self.send_to_stream(index, event);
            }
            Action::LookUp { sequence } => {
                self.send_to_stream(index, Event::LookUp { node: index, incarnation, sequence });
            }
            Action::Tail { from } => {
                // The stream says where it begins, and delivers in order, until something is lost.
                let (mut time, first) = (self.now, self.stream.first());
                if let Some(member) = &mut self.nodes[index].member {
                    member.missed(first);
                }
                for sequence in from.max(first)..=self.stream.last() {
                    if self.now < self.nodes[index].cut_off_until || self.is_lost() {
                        break;
                    }
                    time += self.chance.between(0, 3);
                    self.at(time, Event::Delivered { node: index, incarnation, sequence });
                }
            }
            Action::Apply { batch, position } => {
                self.nodes[index].write(position, node::ops(&batch.content), None);
                self.agree(index, position.sequence)?;
            }
            Action::Lead { position } => {
                self.nodes[index].write(position, Vec::new(), None);
                self.agree(index, position.sequence)?;
            }
            Action::Committed { sequence } => {
                self.agree(index, sequence)?;
                self.answer_clients(index)?;
            }
            Action::Follow => self.forget_clients(index),
            Action::StepDown { keep } => {
                if self.rules.cuts {
                    self.nodes[index].cut(keep);
                }
                self.forget_clients(index);
            }
            Action::Stop(alarm) => return Err(Broken::Alarm { alarm, node: index }),
        }
        Ok(())
    }

    fn forget_clients(&mut self, index: usize) {
        self.nodes[index].forget_clients();
    }

    /// All nodes hold the same up to `sequence`.
    fn agree(&mut self, index: usize, sequence: u64) -> Result<(), Broken> {
        let node = &self.nodes[index];
        let Some(at) = node.log.iter().rposition(|e| e.position.sequence == sequence) else {
            // A sign of life leaves nothing in a leader's log.
            return Ok(());
        };
        let position = node.log[at].position;
        let ops = node.log[..=at].iter().map(|entry| entry.ops.len()).sum();
        self.ledger.agree(position, ops, index)
    }

    /// Answers leave when the stream has the batch and the own log is durable that far.
    fn answer_clients(&mut self, index: usize) -> Result<(), Broken> {
        let node = &mut self.nodes[index];
        let Some(member) = &node.member else { return Ok(()) };
        let happened = member.position().sequence;
        while let Some(&(sequence, term, _)) = node.unanswered.first() {
            if sequence > happened || !node.is_durable(sequence) {
                break;
            }
            let ops = node.unanswered.remove(0).2;
            if self.rules.forgets {
                // What it has forgotten it takes again, from whoever leads next: no rule of ours holds until the alarm.
                self.ledger.acknowledged.extend(ops);
            } else {
                self.ledger.acknowledge(sequence, term, index, ops)?;
            }
        }
        Ok(())
    }

    fn send_to_stream(&mut self, index: usize, event: Event) {
        if self.now < self.nodes[index].cut_off_until || self.is_lost() {
            return;
        }
        if !self.is_calm() && self.chance.one_in(12) {
            self.soon(1, 4_000, event.clone());
        }
        let late = if !self.is_calm() && self.chance.one_in(10) { 5_000 } else { 10 };
        self.soon(1, late, event);
    }

    fn send_to_node(&mut self, index: usize, event: Event) {
        if self.now < self.nodes[index].cut_off_until || self.is_lost() {
            return;
        }
        let late = if !self.is_calm() && self.chance.one_in(10) { 3_000 } else { 10 };
        self.soon(1, late, event);
    }

    fn is_lost(&mut self) -> bool {
        !self.is_calm() && self.chance.one_in(15)
    }

    fn append(&mut self, node: usize, incarnation: u64, id: String, expected: u64, message: &[u8]) {
        if self.now < self.leaderless_until {
            let answer = Answer::Unknown;
            return self.send_to_node(node, Event::Answered { node, incarnation, id, answer });
        }
        let expected = self.rules.stream_checks_sequence.then_some(expected);
        let before = self.stream.last();
        let answer = self.stream.append(&id, expected, message, self.now);
        for sequence in before + 1..=self.stream.last() {
            for index in 0..NODES {
                let incarnation = self.nodes[index].incarnation;
                self.send_to_node(index, Event::Delivered { node: index, incarnation, sequence });
            }
        }
        self.send_to_node(node, Event::Answered { node, incarnation, id, answer });
    }

    /// A client sends something to whoever says that it leads.
    fn client(&mut self) -> Result<(), Broken> {
        let leads = |node: &&mut Node| {
            node.member.as_ref().is_some_and(|member| member.role() == Role::Leading)
        };
        let now = self.now;
        let mut leaders: Vec<&mut Node> =
            self.nodes.iter_mut().filter(leads).filter(|node| now >= node.paused_until).collect();
        if !leaders.is_empty() {
            let pick = self.chance.between(0, leaders.len() as u64) as usize;
            let node = &mut leaders[pick];
            for _ in 0..self.chance.between(1, 4) {
                // The low bits are the client: each has one order, whatever becomes of what it sends.
                self.next_op += 4;
                node.waiting.push(self.next_op | self.chance.between(0, 4));
            }
            let index = node.index;
            self.act(index)?;
        }
        self.soon(5, 400, Event::Client);
        Ok(())
    }

    /// Somebody reads at whoever says that it leads.
    fn read(&mut self) -> Result<(), Broken> {
        for node in &self.nodes {
            let Some(member) = &node.member else { continue };
            let allowed = match self.rules.reads_need_lease {
                true => member.may_read(node.clock(self.now)),
                false => member.role() == Role::Leading,
            };
            if self.now >= node.paused_until && allowed {
                self.reads += 1;
                self.ledger.check_read(&node.ops().collect::<HashSet<_>>(), node.index)?;
            }
        }
        self.soon(50, 600, Event::Read);
        Ok(())
    }

    fn accident(&mut self) {
        if self.is_calm() {
            return;
        }
        let index = self.chance.between(0, NODES as u64) as usize;
        let until = self.now + self.chance.between(100, 9_000);
        match self.chance.between(0, 6) {
            0 | 1 if self.nodes[index].member.is_some() => {
                if self.is_told {
                    println!("{:>6} node {index} crashes until {until}", self.now);
                }
                let kept = self.chance.next();
                self.nodes[index].crash(kept);
                self.at(until.min(CALM_MS), Event::Start { node: index });
            }
            2 => self.nodes[index].paused_until = until.min(CALM_MS),
            3 => self.nodes[index].cut_off_until = until.min(CALM_MS),
            4 => self.leaderless_until = until.min(CALM_MS),
            _ => self.give_away(index),
        }
        self.soon(200, 6_000, Event::Accident);
    }

    /// Whoever leads gives the lead to another.
    fn give_away(&mut self, to: usize) {
        for index in 0..NODES {
            let node = &mut self.nodes[index];
            let clock = node.clock(self.now);
            if self.now < node.paused_until || index == to {
                continue;
            }
            if let Some(member) = &mut node.member
                && member.yield_to(to as u32, clock).is_ok()
            {
                node.tick_at = self.now;
                self.at(self.now, Event::Tick { node: index });
            }
        }
    }

    /// Everybody is well: one leads, all hold the same, and nothing promised is missing.
    fn check_end(self) -> Result<Summary, Broken> {
        let members = || self.nodes.iter().filter_map(|node| node.member.as_ref());
        if members().filter(|member| member.role() == Role::Leading).count() != 1 {
            return Err(Broken::NoLeader);
        }
        let last = self.stream.last();
        if members().any(|member| member.position().sequence + 3 < last) {
            return Err(Broken::Apart);
        }
        let terms = members().map(|member| member.position().term).max().unwrap_or(0);
        for node in &self.nodes {
            let taken = node.member.as_ref().map_or(0, |member| member.position().sequence);
            // What is under way as the run ends is nobody's promise.
            let known: Vec<u64> = node
                .log
                .iter()
                .filter(|entry| entry.position.sequence <= taken)
                .flat_map(|entry| entry.ops.iter().copied())
                .collect();
            if taken == last {
                self.ledger.check_log(known.into_iter(), node.index)?;
            }
        }
        let acknowledged = self.ledger.acknowledged.len() as u64;
        Ok(Summary { acknowledged, terms, reads: self.reads, purged: self.purged })
    }
}

/// An action in short.
fn told(action: &Action) -> String {
    match action {
        Action::Append { id, expected, .. } => format!("append {id} behind {expected}"),
        Action::Apply { batch, position } => {
            format!("apply {} of term {} at {}", batch.id(), batch.term, position.sequence)
        }
        other => format!("{other:?}"),
    }
}
