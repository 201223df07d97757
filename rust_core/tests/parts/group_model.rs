//! A group against a naive model of it: plain vectors, linear scans, every outcome compared; and a
//! group recovered at any point, from its checkpoint or from the calls the log keeps.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use mq9_core::group::{self, Delivered, FetchLimits, Group, Member, Pick};
use mq9_core::log::Lsn;
use mq9_core::mailbox::{Entry, LEVELS, Lane, Level};
use proptest::prelude::*;

/// Levels that messages arrive at; few, so that they meet.
const USED: [u8; 3] = [1, 5, 10];

#[derive(Debug, Clone)]
enum Op {
    Arrive { level: u8, len: u32 },
    Remove { nth: usize },
    Fetch { member: u8, limits: Limits, lease_ms: Option<u64> },
    Ack { msg_ids: Vec<u64>, cumulative: bool },
    Nak { msg_id: u64, delay_ms: Option<u64> },
    Progress { msg_id: u64, wait_ms: u64 },
    Release { member: u8 },
    Pass { ms: u64 },
    Reset { to_end: bool },
    Recover { from_checkpoint: bool },
}

#[derive(Debug, Clone)]
struct Limits {
    max_msgs: usize,
    max_bytes: u64,
    max_level: u8,
    max_deliver: u32,
    max_ack_pending: usize,
}

fn limits() -> impl Strategy<Value = Limits> {
    let max_bytes = prop_oneof![2 => Just(u64::MAX), 1 => 0..12u64];
    let max_level = prop_oneof![3 => Just(10), 1 => 1..=10u8];
    let max_deliver = prop_oneof![2 => Just(0), 1 => 1..4u32];
    let max_ack_pending = prop_oneof![2 => Just(0), 1 => 1..8usize];
    (0..7usize, max_bytes, max_level, max_deliver, max_ack_pending).prop_map(
        |(max_msgs, max_bytes, max_level, max_deliver, max_ack_pending)| Limits {
            max_msgs,
            max_bytes,
            max_level,
            max_deliver,
            max_ack_pending,
        },
    )
}

fn op() -> impl Strategy<Value = Op> {
    let msg_id = || 0..24u64;
    prop_oneof![
        12 => (0..3usize, 1..5u32).prop_map(|(l, len)| Op::Arrive { level: USED[l], len }),
        1 => (0..24usize).prop_map(|nth| Op::Remove { nth }),
        10 => (0..4u8, limits(), prop::option::weighted(0.9, 1..40u64))
            .prop_map(|(member, limits, lease_ms)| Op::Fetch { member, limits, lease_ms }),
        6 => (prop::collection::vec(msg_id(), 1..4), prop::bool::weighted(0.7))
            .prop_map(|(msg_ids, cumulative)| Op::Ack { msg_ids, cumulative }),
        3 => (msg_id(), prop::option::of(0..30u64))
            .prop_map(|(msg_id, delay_ms)| Op::Nak { msg_id, delay_ms }),
        2 => (msg_id(), 0..60u64).prop_map(|(msg_id, wait_ms)| Op::Progress { msg_id, wait_ms }),
        1 => (0..4u8).prop_map(|member| Op::Release { member }),
        4 => (0..25u64).prop_map(|ms| Op::Pass { ms }),
        1 => any::<bool>().prop_map(|to_end| Op::Reset { to_end }),
        1 => any::<bool>().prop_map(|from_checkpoint| Op::Recover { from_checkpoint }),
    ]
}

fn member(number: u8) -> Member {
    match number {
        0 => Member::named("a"),
        1 => Member::named(""),
        n => Member::Conn { epoch: 3, conn: u64::from(n) },
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Hold {
    Free,
    /// Leased or parked, under lease number `.0` until `.1`.
    Until(u64, u64),
}

#[derive(Debug, Clone)]
struct Out {
    msg_id: u64,
    level: u8,
    count: u32,
    member: Option<u8>,
    hold: Hold,
    /// It has left the mailbox.
    gone: bool,
}

/// The group as one would explain it: the pending messages in the order of their last delivery.
#[derive(Debug, Default)]
struct Model {
    start: [u64; LEVELS],
    next: [u64; LEVELS],
    out: Vec<Out>,
    leases: u64,
}

type Row = (u8, u64, u32);

impl Model {
    fn at(&self, msg_id: u64) -> Option<usize> {
        self.out.iter().position(|o| o.msg_id == msg_id && !o.gone)
    }

    fn pending(&self) -> usize {
        self.out.iter().filter(|o| !o.gone).count()
    }

    /// What has gone counts only while its member has more of the same batch.
    fn tidy(&mut self) {
        let held: Vec<_> = self.out.iter().filter(|o| !o.gone).map(|o| o.member).collect();
        self.out.retain(|o| !o.gone || held.contains(&o.member));
    }

    fn lease(&mut self, until: Option<u64>) -> Hold {
        self.leases += 1;
        until.map_or(Hold::Free, |until| Hold::Until(self.leases, until))
    }

    /// Walks all messages of the mailbox in order, and decides for each on its own.
    fn fetch(&self, who: u8, stored: &[(u8, Entry)], limits: &Limits) -> (Vec<Row>, Vec<Row>) {
        let mut all = stored.to_vec();
        all.sort_by_key(|(level, entry)| (*level, entry.msg_id));
        let (mut picks, mut dead, mut bytes, mut new) = (vec![], vec![], 0, 0);
        for (level, entry) in all {
            if level > limits.max_level {
                continue;
            }
            let pending = self.at(entry.msg_id).map(|at| &self.out[at]);
            let count = match pending {
                Some(o) if o.member == Some(who) || o.hold == Hold::Free => o.count,
                Some(_) => continue,
                None if entry.msg_id < self.next[usize::from(level) - 1] => continue,
                None => 0,
            };
            let full = limits.max_ack_pending > 0
                && self.pending() - dead.len() + new >= limits.max_ack_pending;
            if pending.is_none() && full {
                continue;
            }
            if picks.len() >= limits.max_msgs {
                break;
            }
            if pending.is_some() && limits.max_deliver > 0 && count >= limits.max_deliver {
                dead.push((level, entry.msg_id, count));
                continue;
            }
            bytes += u64::from(entry.len);
            if bytes > limits.max_bytes && !picks.is_empty() {
                break;
            }
            picks.push((level, entry.msg_id, count + 1));
            new += usize::from(pending.is_none());
        }
        (picks, dead)
    }

    fn delivered(&mut self, who: u8, rows: &[Row], until: Option<u64>) {
        if rows.is_empty() {
            return;
        }
        self.out.retain(|o| !o.gone || o.member != Some(who));
        for o in self.out.iter_mut().filter(|o| o.member == Some(who)) {
            o.member = None;
            o.hold = Hold::Free;
        }
        let hold = self.lease(until);
        for &(level, msg_id, count) in rows {
            self.out.retain(|o| o.msg_id != msg_id);
            self.out.push(Out { msg_id, level, count, member: Some(who), hold, gone: false });
            let next = &mut self.next[usize::from(level) - 1];
            *next = (*next).max(msg_id + 1);
        }
        self.tidy();
    }

    /// What an ACK of one message confirms, in delivery order; `None` if it was never given.
    fn ack(&self, msg_id: u64, level: Option<u8>, cumulative: bool) -> Option<Vec<u64>> {
        let Some(at) = self.out.iter().position(|o| o.msg_id == msg_id) else {
            let given = (1..=LEVELS as u8).any(|l| {
                level.is_none_or(|level| level == l)
                    && self.start[usize::from(l) - 1] <= msg_id
                    && msg_id < self.next[usize::from(l) - 1]
            });
            return given.then(Vec::new);
        };
        let owner = self.out[at].member;
        let reached = |i: usize, o: &Out| {
            !o.gone && (i == at || (cumulative && i < at && owner.is_some() && o.member == owner))
        };
        let ids = self.out.iter().enumerate().filter(|(i, o)| reached(*i, o));
        Some(ids.map(|(_, o)| o.msg_id).collect())
    }

    fn expire(&mut self, now: u64) -> usize {
        let mut freed = 0;
        for o in &mut self.out {
            if matches!(o.hold, Hold::Until(_, until) if until <= now) {
                o.hold = Hold::Free;
                freed += 1;
            }
        }
        freed
    }

    fn deadlines(&self) -> Vec<(u64, u64)> {
        let mut all: Vec<_> = self
            .out
            .iter()
            .filter_map(|o| match o.hold {
                Hold::Until(lease, until) => Some((until, lease)),
                Hold::Free => None,
            })
            .collect();
        all.sort();
        all.dedup();
        all
    }
}

/// A call that the log keeps.
#[derive(Debug, Clone)]
enum Logged {
    Reset([u64; LEVELS]),
    Delivered(Member, Vec<Delivered>),
    Acked(Vec<u64>),
    Nak(u64),
    Forget(u64),
}

fn replay(log: &[Logged]) -> Group {
    let mut group = Group::new([0; LEVELS]);
    for call in log.iter().cloned() {
        match call {
            Logged::Reset(start) => drop(group.reset(start)),
            Logged::Delivered(member, rows) => {
                group.apply_delivered(&member, rows, None, false);
            }
            Logged::Acked(ids) => drop(group.apply_acked(ids)),
            Logged::Nak(id) => drop(group.nak(id, None)),
            Logged::Forget(id) => drop(group.forget(id)),
        }
    }
    group
}

fn encoded(group: &Group) -> Vec<u8> {
    let mut bytes = Vec::new();
    group.snapshot().encode(&mut bytes);
    bytes
}

struct World {
    group: Group,
    model: Model,
    stored: Vec<(u8, Entry)>,
    lanes: Vec<(Level, Lane)>,
    log: Vec<Logged>,
    arrived: u64,
    now: u64,
}

fn level(number: u8) -> Level {
    Level::new(number).unwrap()
}

fn rows(picks: &[Pick]) -> Vec<Row> {
    picks.iter().map(|p| (p.level.number(), p.entry.msg_id, p.count)).collect()
}

impl World {
    fn new() -> World {
        World {
            group: Group::new([0; LEVELS]),
            model: Model::default(),
            stored: Vec::new(),
            lanes: Vec::new(),
            log: Vec::new(),
            arrived: 0,
            now: 0,
        }
    }

    fn remove(&mut self, msg_id: u64) {
        self.stored.retain(|(_, entry)| entry.msg_id != msg_id);
        for (_, lane) in &mut self.lanes {
            lane.remove(msg_id);
        }
        self.lanes.retain(|(_, lane)| !lane.is_empty());
        let pending = self.model.at(msg_id).is_some();
        for o in self.model.out.iter_mut().filter(|o| o.msg_id == msg_id) {
            (o.gone, o.hold) = (true, Hold::Free);
        }
        self.model.out.retain(|o| !o.gone || o.member.is_some());
        self.model.tidy();
        assert_eq!(self.group.forget(msg_id), pending);
        self.log.push(Logged::Forget(msg_id));
    }

    fn ack(&mut self, ids: &[u64]) {
        let before = self.model.pending();
        self.model.out.retain(|o| !ids.contains(&o.msg_id));
        self.model.tidy();
        let confirmed = self.group.apply_acked(ids.iter().copied());
        assert_eq!(confirmed, before - self.model.pending());
        self.log.push(Logged::Acked(ids.to_vec()));
    }

    fn run(&mut self, op: Op) {
        match op {
            Op::Arrive { level: number, len } => {
                let msg_id = self.arrived;
                self.arrived += 1;
                let entry = Entry { msg_id, at: Lsn::NONE, len, create_ms: 0, flags: 0 };
                self.stored.push((number, entry));
                let at = match self.lanes.binary_search_by_key(&level(number), |(l, _)| *l) {
                    Ok(at) => at,
                    Err(at) => {
                        self.lanes.insert(at, (level(number), Lane::default()));
                        at
                    }
                };
                self.lanes[at].1.put(entry);
            }
            Op::Remove { nth } => {
                if let Some((_, entry)) = self.stored.get(nth) {
                    self.remove(entry.msg_id);
                }
            }
            Op::Fetch { member: who, limits, lease_ms } => {
                let (picks, dead) = self.model.fetch(who, &self.stored, &limits);
                let plan = self.group.plan_fetch(
                    &member(who),
                    &self.lanes,
                    &FetchLimits {
                        max_msgs: limits.max_msgs,
                        max_bytes: limits.max_bytes,
                        max_level: level(limits.max_level),
                        max_deliver: limits.max_deliver,
                        max_ack_pending: limits.max_ack_pending,
                        held: true,
                        conn: 2,
                    },
                );
                assert_eq!(rows(&plan.picks), picks, "picks");
                assert_eq!(rows(&plan.dead), dead, "dead");
                for pick in plan.picks.iter().chain(&plan.dead) {
                    assert!(self.stored.contains(&(pick.level.number(), pick.entry)));
                }
                self.ack(&dead.iter().map(|row| row.1).collect::<Vec<_>>());
                let until = lease_ms.map(|ms| self.now + ms);
                let delivered: Vec<_> = plan.picks.iter().map(Pick::delivered).collect();
                let hold = until.map(|until_mono_ms| group::Hold { until_mono_ms, conn: 1 });
                self.group.apply_delivered(&member(who), delivered.iter().copied(), hold, false);
                self.model.delivered(who, &picks, until);
                self.log.push(Logged::Delivered(member(who), delivered));
            }
            Op::Ack { msg_ids, cumulative } => {
                let level_of = |msg_id: u64| {
                    self.stored.iter().find(|(_, e)| e.msg_id == msg_id).map(|(number, _)| *number)
                };
                let of_model =
                    |msg_id: &u64| self.model.ack(*msg_id, level_of(*msg_id), cumulative);
                let each: Vec<Option<Vec<u64>>> = msg_ids.iter().map(of_model).collect();
                let refused = each.iter().position(Option::is_none).map(|at| msg_ids[at]);
                let asked = msg_ids.iter().map(|&id| (id, level_of(id).map(level)));
                let mut ids = Vec::new();
                let planned = self.group.plan_acks(asked, cumulative, &mut ids);
                assert_eq!(planned.err(), refused);
                if refused.is_some() {
                    return;
                }
                if let [Some(one)] = &each[..] {
                    assert_eq!(&ids, one, "in delivery order");
                }
                // Each once, whoever of those asked for reaches it.
                let all: BTreeSet<u64> = each.into_iter().flatten().flatten().collect();
                assert_eq!(ids.len(), all.len(), "{ids:?}");
                assert_eq!(ids.iter().copied().collect::<BTreeSet<u64>>(), all);
                self.ack(&ids);
            }
            Op::Nak { msg_id, delay_ms } => {
                let until = delay_ms.map(|ms| self.now + ms);
                let at = self.model.at(msg_id);
                assert_eq!(self.group.nak(msg_id, until), at.is_some());
                if let Some(at) = at {
                    let hold = self.model.lease(until);
                    self.model.out[at].member = None;
                    self.model.out[at].hold = hold;
                    self.model.tidy();
                }
                self.log.push(Logged::Nak(msg_id));
            }
            Op::Progress { msg_id, wait_ms } => {
                let until = self.now + wait_ms;
                let at = self.model.at(msg_id).filter(|at| self.model.out[*at].member.is_some());
                assert_eq!(self.group.progress(msg_id, until), at.is_some());
                if let Some(at) = at
                    && !matches!(self.model.out[at].hold, Hold::Until(_, old) if old >= until)
                {
                    self.model.out[at].hold = self.model.lease(Some(until));
                }
            }
            Op::Release { member: who } => {
                let mut freed = 0;
                for o in self.model.out.iter_mut().filter(|o| o.member == Some(who)) {
                    freed += usize::from(o.hold != Hold::Free);
                    o.hold = Hold::Free;
                }
                assert_eq!(self.group.release_member(&member(who)), freed);
            }
            Op::Pass { ms } => {
                self.now += ms;
                assert_eq!(self.group.expire_leases(self.now), self.model.expire(self.now));
            }
            Op::Reset { to_end } => {
                let start = [if to_end { self.arrived } else { self.arrived / 2 }; LEVELS];
                self.group.reset(start);
                self.model = Model { start, next: start, ..Model::default() };
                self.log.push(Logged::Reset(start));
            }
            Op::Recover { from_checkpoint } => {
                let bytes = encoded(&self.group);
                self.group = match from_checkpoint {
                    true => {
                        let mut group = Group::decode(&bytes).unwrap();
                        let pending = group.all_pending().map(|p| p.delivered.msg_id);
                        let stored = |id: &u64| self.stored.iter().any(|(_, e)| e.msg_id == *id);
                        let lost: Vec<u64> = pending.filter(|id| !stored(id)).collect();
                        lost.into_iter().for_each(|id| assert!(group.forget(id)));
                        group
                    }
                    false => replay(&self.log),
                };
                self.model.out.iter_mut().for_each(|o| o.hold = Hold::Free);
            }
        }
    }

    fn check(&self) {
        let (group, model) = (&self.group, &self.model);
        let deadlines = model.deadlines();
        assert_eq!(group.leases(), deadlines.len(), "leases");
        assert_eq!(group.next_deadline_ms(), deadlines.first().map(|d| d.0));
        assert_eq!((group.start(), group.cursors()), (&model.start, &model.next));
        assert_eq!(group.outstanding(), model.pending());
        let holders = (0..4).filter(|who| model.out.iter().any(|o| o.member == Some(*who)));
        assert_eq!(group.holders(), holders.count(), "holders");
        let seen: Vec<_> = group
            .all_pending()
            .map(|p| {
                assert_eq!(group.pending(p.delivered.msg_id), Some(p));
                (p.delivered, p.member.cloned(), p.until_mono_ms)
            })
            .collect();
        let expected: Vec<_> = model
            .out
            .iter()
            .filter(|o| !o.gone)
            .map(|o| {
                let delivered =
                    Delivered { level: level(o.level), msg_id: o.msg_id, count: o.count };
                let until = match o.hold {
                    Hold::Until(_, until) => Some(until),
                    Hold::Free => None,
                };
                (delivered, o.member.map(member), until)
            })
            .collect();
        assert_eq!(seen, expected, "pending");
    }

    /// The checkpoint, the replayed log and the group itself are one state, leases aside.
    fn check_recovery(&self) {
        let bytes = encoded(&self.group);
        assert_eq!(encoded(&replay(&self.log)), bytes, "replay");
        let decoded = Group::decode(&bytes).unwrap();
        assert_eq!(encoded(&decoded), bytes, "decode");
        assert_eq!(decoded.leases(), 0);
        assert_eq!(decoded.holders(), self.group.holders());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn a_group_does_what_the_model_does(ops in prop::collection::vec(op(), 1..120)) {
        let mut world = World::new();
        for op in ops {
            world.run(op);
            world.check();
            world.check_recovery();
        }
    }

    #[test]
    fn damaged_checkpoints_never_panic(
        ops in prop::collection::vec(op(), 1..40),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut world = World::new();
        ops.into_iter().for_each(|op| world.run(op));
        let mut bytes = encoded(&world.group);
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(group) = Group::decode(&bytes) {
            prop_assert_eq!(encoded(&group), bytes);
        }
    }

    #[test]
    fn any_checkpoint_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        Group::decode(&bytes);
    }
}
