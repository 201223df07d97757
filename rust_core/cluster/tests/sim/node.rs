//! One machine: a member, its own log, and what survives when the machine stops.

use mq9_cluster::{Config, Content, Member, Position, Record, Recovered, Writer};

use super::world::Rules;

/// One batch in a node's own log.
pub struct Entry {
    pub position: Position,
    pub ops: Vec<u64>,
    /// Written by this node as a leader, behind this, before it knew whether the stream has it.
    led_from: Option<Position>,
}

/// One machine.
pub struct Node {
    pub index: usize,
    /// None while it is down.
    pub member: Option<Member>,
    pub incarnation: u64,
    pub log: Vec<Entry>,
    /// How much of the log survives a stop.
    durable: usize,
    /// What clients gave it that no batch has taken yet.
    pub waiting: Vec<u64>,
    /// Operations in batches whose clients have no answer, by the batch's sequence and term.
    pub unanswered: Vec<(u64, u64, Vec<u64>)>,
    /// Nothing moves before this.
    pub paused_until: u64,
    /// Nothing passes between it and the stream before this.
    pub cut_off_until: u64,
    /// When it is woken next.
    pub tick_at: u64,
    /// Its clock runs this many thousandths as fast as it should.
    rate: u64,
    offset: u64,
}

impl Node {
    pub fn new(index: usize, rate: u64, offset: u64) -> Node {
        Node {
            index,
            member: None,
            incarnation: 0,
            log: Vec::new(),
            durable: 0,
            waiting: Vec::new(),
            unanswered: Vec::new(),
            paused_until: 0,
            cut_off_until: 0,
            tick_at: 0,
            rate,
            offset,
        }
    }

    /// What its own clock shows.
    pub fn clock(&self, now: u64) -> u64 {
        self.offset + now * self.rate / 1000
    }

    /// When its own clock shows `at`.
    pub fn when(&self, at: u64) -> u64 {
        at.saturating_sub(self.offset) * 1000 / self.rate + 1
    }

    pub fn start(&mut self, incarnation: u64, rules: &Rules, now: u64) {
        self.incarnation = incarnation;
        let writer = Writer { node: self.index as u32, incarnation };
        let mut config = Config::new(7, 1, writer, incarnation.wrapping_mul(31));
        (config.window, config.checks_terms) = (rules.window, rules.checks_terms);
        self.member = Some(Member::new(config, self.recovered(rules), self.clock(now)));
    }

    fn recovered(&mut self, rules: &Rules) -> Recovered {
        if rules.window > 1 {
            // With several under way a log may end with several that are uncertain: all are cut, and delivered again
            // if they happened.
            while self.log.last().is_some_and(|entry| entry.led_from.is_some()) {
                self.log.pop();
            }
            self.durable = self.log.len();
        }
        match self.log.last() {
            None => Recovered::default(),
            Some(Entry { position, led_from: None, .. }) => {
                Recovered { certain: *position, uncertain: None }
            }
            Some(Entry { position, led_from: Some(before), .. }) => {
                Recovered { certain: *before, uncertain: Some(*position) }
            }
        }
    }

    /// Stops without a word; `kept` says how much of what was not synced survives all the same.
    pub fn crash(&mut self, kept: u64) -> Vec<u64> {
        self.member = None;
        let unsynced = (self.log.len() - self.durable) as u64;
        self.log.truncate(self.durable + (kept % (unsynced + 1)) as usize);
        self.durable = self.log.len();
        self.forget_clients()
    }

    /// Everybody who waits is told that the outcome is unknown.
    pub fn forget_clients(&mut self) -> Vec<u64> {
        let mut unknown = std::mem::take(&mut self.waiting);
        unknown.extend(self.unanswered.drain(..).flat_map(|(_, _, ops)| ops));
        unknown
    }

    pub fn sync(&mut self) {
        self.durable = self.log.len();
    }

    pub fn is_durable(&self, sequence: u64) -> bool {
        self.log[..self.durable].last().is_some_and(|entry| entry.position.sequence >= sequence)
    }

    /// Up to where its log says, over any stop, what the stream had. A leader's last batch is not among it.
    pub fn sequence_for_ever(&self) -> u64 {
        let last = self.log[..self.durable].last();
        last.map_or(0, |e| e.led_from.unwrap_or(e.position).sequence)
    }

    /// The same, as operations.
    pub fn ops_for_ever(&self) -> Vec<u64> {
        let (durable, certain) = (&self.log[..self.durable], self.sequence_for_ever());
        let known = durable.iter().take_while(|entry| entry.position.sequence <= certain);
        known.flat_map(|entry| entry.ops.iter().copied()).collect()
    }

    pub fn write(&mut self, position: Position, ops: Vec<u64>, led_from: Option<Position>) {
        self.log.push(Entry { position, ops, led_from });
    }

    pub fn cut(&mut self, keep: Position) {
        self.log.retain(|entry| entry.position.sequence <= keep.sequence);
        self.durable = self.durable.min(self.log.len());
    }

    /// The operations of its log, in order.
    pub fn ops(&self) -> impl Iterator<Item = u64> {
        self.log.iter().flat_map(|entry| entry.ops.iter().copied())
    }
}

/// Operations as records.
pub fn records(ops: &[u64]) -> Vec<Record> {
    ops.iter()
        .map(|op| Record { kind: 4, flags: 0, mailbox: 1, body: op.to_le_bytes().to_vec() })
        .collect()
}

/// The operations that a batch holds.
pub fn ops(content: &Content) -> Vec<u64> {
    let Content::Records(records) = content else { return Vec::new() };
    let number = |record: &Record| record.body[..].try_into().map(u64::from_le_bytes);
    records.iter().filter_map(|record| number(record).ok()).collect()
}
