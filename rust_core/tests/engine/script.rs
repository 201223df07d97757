//! Scripts of several clients: each step is drawn from one number, out of few names, so that they collide.

use mq9_core::mailbox::{Discard, Level, Policy};
use mq9_core::store::{AckKind, Fetch, GroupFetch, MemberId, Start};

/// Clients connected at a time.
pub const CLIENTS: usize = 3;
/// In the order they are created, which is the order in which waits on them are looked at.
pub const ADDRESSES: [&str; 4] = ["a", "dead", "q", "work"];

/// What a client sends.
#[derive(Debug, Clone)]
pub struct NewMessage {
    pub level: Level,
    pub key: &'static str,
    pub ttl_ms: u64,
    pub delay_ms: u64,
    /// Empty is none.
    pub id: &'static str,
}

#[derive(Debug, Clone)]
pub enum Ask {
    Send { address: &'static str, message: NewMessage },
    Fetch { fetch: Fetch, raw: bool },
    Ack { address: &'static str, group: &'static str, newest: Vec<usize>, kind: AckKind, raw: bool },
}

#[derive(Debug, Clone)]
pub enum Step {
    /// A client has something to say; without `quiet` it wants an answer.
    Say {
        client: usize,
        ask: Ask,
        quiet: bool,
    },
    /// So many bytes of what it has to say arrive.
    Arrive {
        client: usize,
        bytes: usize,
    },
    /// Everything that it has to say arrives.
    ArriveAll {
        client: usize,
    },
    Settle,
    Sync,
    Pass {
        ms: u64,
    },
    Disconnect {
        client: usize,
    },
    /// It may not fetch from this mailbox any more; without one it may do everything.
    Permit {
        client: usize,
        denied: Option<&'static str>,
    },
    Checkpoint,
    /// A power cut when everything is durable.
    Restart,
}

pub fn policy(address: &str) -> Policy {
    match address {
        "q" => Policy { max_deliver: 2, dead_letter: Some("dead".into()), ..Policy::default() },
        "work" => {
            Policy { work_queue: true, max_msgs: 12, discard: Discard::New, ..Policy::default() }
        }
        _ => Policy::default(),
    }
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(self.0) * bound as u128) >> 64) as usize
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }
}

impl Step {
    pub fn draw(seed: u64) -> Step {
        let mut dice = Dice(seed);
        let client = dice.below(CLIENTS);
        match dice.below(100) {
            0..52 => {
                let ask = match dice.below(10) {
                    0..4 => Ask::draw_send(&mut dice),
                    4..7 => Ask::draw_fetch(&mut dice),
                    _ => Ask::draw_ack(&mut dice),
                };
                Step::Say { client, ask, quiet: dice.below(12) == 0 }
            }
            52..58 => Step::Arrive { client, bytes: 1 + dice.below(250) },
            58..72 => Step::ArriveAll { client },
            72..80 => Step::Settle,
            80..86 => Step::Sync,
            86..93 => Step::Pass { ms: dice.one(&[1, 90, 300, 700, 1500, 2600]) },
            93..95 => Step::Disconnect { client },
            95..97 => {
                Step::Permit { client, denied: dice.one(&[None, None, Some("a"), Some("q")]) }
            }
            97..99 => Step::Checkpoint,
            _ => Step::Restart,
        }
    }
}

impl Ask {
    fn draw_send(dice: &mut Dice) -> Ask {
        let message = NewMessage {
            level: Level::new(dice.one(&[1, 5, 5, 5, 9])).unwrap(),
            key: dice.one(&["", "", "", "", "k", "l"]),
            ttl_ms: dice.one(&[0, 0, 0, 0, 0, 400, 2000]),
            delay_ms: dice.one(&[0, 0, 0, 0, 0, 250, 1000]),
            id: dice.one(&["", "", "", "x", "y"]),
        };
        Ask::Send { address: dice.one(&["a", "a", "q", "work", "none"]), message }
    }

    fn draw_fetch(dice: &mut Dice) -> Ask {
        let address = dice.one(&["a", "a", "q", "q", "work", "dead"]);
        let name = Ask::draw_group(dice, address).to_owned();
        let member = match dice.below(3) {
            0 => MemberId::Named("w".to_owned()),
            _ => MemberId::Conn,
        };
        let force = dice.below(25) == 0;
        let group = (dice.below(5) > 0).then_some(GroupFetch { name, member, force });
        let fetch = Fetch {
            held: group.is_none() || dice.below(4) > 0,
            group,
            start: dice.one(&[Start::Earliest, Start::Earliest, Start::Latest, Start::Id(2)]),
            max_msgs: dice.one(&[1, 2, 3, 50]),
            max_bytes: 1 << 20,
            max_level: Level::new(dice.one(&[10, 10, 10, 5, 1])).unwrap(),
            ack_wait_ms: dice.one(&[0, 0, 900]),
            wait_ms: dice.one(&[0, 0, 300, 1200]),
            ..Fetch::all(address)
        };
        Ask::Fetch { fetch, raw: dice.below(3) == 0 }
    }

    fn draw_ack(dice: &mut Dice) -> Ask {
        let address = dice.one(&["a", "a", "q", "q", "work"]);
        let group = Ask::draw_group(dice, address);
        let raw = dice.below(3) == 0;
        let kind = match dice.below(10) {
            0..3 => AckKind::Done { only: raw },
            3..5 => AckKind::Done { only: true },
            5 => AckKind::Return { delay_ms: 0 },
            6 => AckKind::Return { delay_ms: 600 },
            7..9 => AckKind::Progress,
            _ => AckKind::Terminate,
        };
        let count = if raw { 1 } else { 1 + dice.below(2) };
        let newest = (0..count).map(|_| dice.below(5)).collect();
        Ask::Ack { address, group, newest, kind, raw }
    }

    /// In the mailbox whose messages die there is one group: which of two is first to move one is nobody's promise.
    fn draw_group(dice: &mut Dice, address: &str) -> &'static str {
        if address == "q" { "g" } else { dice.one(&["g", "g", "h"]) }
    }
}
