//! The workloads: one written by hand that does everything, and any number of random ones.

use mq9_core::mailbox::{Policy, Tier};
use mq9_core::store::{AckKind, Start};

use crate::world::{Step, With};

const DONE: AckKind = AckKind::Done { only: false };
const ONLY: AckKind = AckKind::Done { only: true };
const RETURN: AckKind = AckKind::Return { delay_ms: 0 };
const REST: AckKind = AckKind::Return { delay_ms: 5_000 };
const TERMINATE: AckKind = AckKind::Terminate;

const HOUR: u64 = 3_600_000;

fn create(address: &'static str) -> Step {
    let policy = match address {
        "work" => Policy { work_queue: true, owner: Some("ada".into()), ..Policy::default() },
        "limit" => Policy { max_msgs: 4, owner: Some("bob".into()), ..Policy::default() },
        "last" => Policy { latest: true, ..Policy::default() },
        "fail" => Policy { max_deliver: 2, dead_letter: Some("dead".into()), ..Policy::default() },
        "wfail" => Policy {
            max_deliver: 1,
            work_queue: true,
            dead_letter: Some("dead".into()),
            ..Policy::default()
        },
        "idle" => Policy { group_ttl_ms: 5_000, ..Policy::default() },
        "mem" => Policy { tier: Tier::Memory, ..Policy::default() },
        _ => Policy::default(),
    };
    let ttl_ms = if address == "brief" { 20_000 } else { 0 };
    Step::Create(address, Box::new(policy), ttl_ms)
}

fn send(address: &'static str, size: usize) -> Step {
    Step::Send(address, With { size, ..With::default() })
}

fn keyed(address: &'static str, key: &'static str) -> Step {
    Step::Send(address, With { key, level: 3, size: 60, ..With::default() })
}

fn delayed(address: &'static str, delay_ms: u64, ttl_ms: u64) -> Step {
    Step::Send(address, With { delay_ms, ttl_ms, size: 420, ..With::default() })
}

fn once(address: &'static str, id: &'static str, delay_ms: u64) -> Step {
    Step::SendOnce(address, id, With { delay_ms, size: 40, ..With::default() })
}

fn fetch(address: &'static str, group: &'static str, max: usize) -> Step {
    Step::Fetch(address, group, "one", max)
}

fn ack(address: &'static str, group: &'static str, kind: AckKind, nth: usize) -> Step {
    Step::Ack(address, group, kind, nth)
}

/// Every kind of command, over several segments, checkpoints, compactions and openings.
pub fn everything() -> Vec<Step> {
    use Step::{
        Cancel, Checkpoint, Close, Delete, Flush, Kill, Maintain, Pin, Purge, Remove, RemoveGroup,
        Rotate, Sync, Update, Wait,
    };
    let mut steps: Vec<Step> =
        ["a", "work", "limit", "last", "fail", "wfail", "mem", "brief"].map(create).to_vec();
    steps.push(Sync);
    for level in [5, 1, 9, 5, 3] {
        steps.push(Step::Send("a", With { level, size: 150, ..With::default() }));
    }
    steps.extend([Flush, keyed("a", "k"), keyed("a", "l"), Sync, keyed("a", "k")]);
    steps.extend([delayed("a", 9_000, 0), delayed("a", 9_000, 0), delayed("a", 9 * HOUR, 0)]);
    steps.extend([delayed("a", 4_000, 2_000), Sync, send("mem", 9), send("brief", 300)]);
    steps.push(Step::Send("a", With { ttl_ms: 15_000, size: 30, ..With::default() }));
    steps.push(Step::Send("a", With { ttl_ms: 24 * HOUR, size: 30, ..With::default() }));
    steps.extend([fetch("a", "g", 3), Pin("a", "late", Start::Latest), Sync]);
    steps.extend([ack("a", "g", DONE, 1), send("a", 500), Flush, fetch("a", "g", 4), Sync]);
    steps.extend([ack("a", "g", ONLY, 2), ack("a", "g", RETURN, 0), Sync, fetch("a", "g", 2)]);
    for _ in 0..7 {
        steps.extend([send("limit", 200), send("last", 200)]);
    }
    steps.push(Sync);
    steps.extend([send("limit", 430), Flush, send("limit", 430), send("limit", 430), Sync]);
    for size in [10, 300, 450, 450] {
        steps.extend([send("work", size), send("fail", size), send("wfail", size)]);
    }
    steps.extend([Sync, fetch("work", "w", 3), ack("work", "w", DONE, 1), Flush]);
    steps.extend([fetch("fail", "f", 2), fetch("wfail", "f", 2), Sync, Kill]);
    // Delivered twice by now or after their leases: both die, the delayed ones come.
    steps.extend([fetch("fail", "f", 2), Sync, Wait(31_000), Sync, fetch("fail", "f", 1)]);
    steps.extend([ack("fail", "f", TERMINATE, 0), Flush, send("fail", 380)]);
    steps.extend([ack("fail", "f", TERMINATE, 0), Checkpoint, fetch("a", "g", 9)]);
    steps.extend([ack("a", "g", REST, 1), ack("a", "g", DONE, 3), Delete("a", 1), Close]);
    steps.extend([send("a", 700), Delete("a", 0), create("gone"), send("gone", 300), Sync]);
    steps.extend([fetch("gone", "g", 1), Remove("gone"), create("gone"), send("gone", 30)]);
    steps.extend([Rotate, Sync, fetch("gone", "g", 1), Kill, fetch("gone", "g", 1), Sync]);
    for _ in 0..4 {
        steps.extend([keyed("a", "k"), send("a", 600), send("work", 700), fetch("work", "w", 9)]);
        steps.extend([ack("work", "w", DONE, 8), Delete("a", 2), send("limit", 600), Sync]);
    }
    steps.extend([Maintain, Sync, fetch("a", "g", 9), Remove("brief"), Checkpoint, Maintain]);
    steps.extend([ack("a", "g", DONE, 5), delayed("a", 100, 0), Wait(200), Sync, Maintain]);
    steps.extend([Pin("a", "g", Start::Earliest), fetch("a", "g", 2), send("mem", 5), Sync]);
    for _ in 0..3 {
        steps.extend([send("a", 900), send("work", 800), Delete("a", 3), Flush, send("last", 900)]);
        steps.extend([fetch("work", "w", 9), ack("work", "w", DONE, 0), Sync, Maintain]);
    }
    steps.extend([Close, send("a", 20), fetch("a", "late", 3), Flush, Kill, send("a", 20), Sync]);
    steps.extend([Remove("gone"), Maintain, Close, send("a", 9), Sync]);
    // One group of three goes, comes again in its place and goes with its records in two segments.
    steps.extend([fetch("a", "late", 9), RemoveGroup("a", "late"), Sync, fetch("a", "next", 2)]);
    steps.extend([
        fetch("a", "late", 2),
        ack("a", "late", DONE, 1),
        Sync,
        RemoveGroup("a", "next"),
    ]);
    steps.extend([fetch("work", "w", 9), RemoveGroup("work", "w"), Flush, fetch("work", "w", 1)]);
    steps.extend([Sync, RemoveGroup("a", "late"), Rotate, send("a", 30), Checkpoint, Kill]);
    steps.extend([fetch("a", "late", 1), Sync, RemoveGroup("a", "g"), Close, send("a", 9), Sync]);
    // Messages that were given out, delayed and held in several segments go at once.
    steps.extend([delayed("a", 9_000, 0), fetch("a", "g", 4), Sync, Purge("a"), Flush]);
    steps.extend([send("a", 300), Purge("work"), send("work", 90), Sync, Maintain, Kill]);
    steps.extend([delayed("a", 100, 0), Purge("mem"), Checkpoint, Purge("a"), Sync]);
    steps.extend([send("a", 30), fetch("a", "g", 4), Sync]);
    // Groups that nobody uses go by themselves, one of two here.
    steps.extend([create("idle"), send("idle", 9), fetch("idle", "g", 1), fetch("idle", "h", 1)]);
    steps.extend([Sync, Wait(3_000), ack("idle", "h", DONE, 0), Sync, Wait(3_000), Sync]);
    steps.extend([send("idle", 9), fetch("idle", "g", 1), Sync, Kill, Wait(5_000), Sync]);
    // Sends that are made twice, delayed or not, and delayed messages that never come.
    steps.extend([once("a", "x", 0), Flush, once("a", "x", 0), once("a", "y", 9 * HOUR), Sync]);
    steps.extend([once("a", "y", 9 * HOUR), Kill, once("a", "x", 0), Checkpoint]);
    steps.extend([delayed("a", 9 * HOUR, 0), Sync, Cancel("a"), Flush, send("a", 9), Cancel("a")]);
    steps.extend([Sync, Rotate, once("a", "y", 0), Cancel("a"), Sync]);
    // Limits are lowered: what is more than they allow goes, and the change stays.
    steps.extend([send("a", 50), send("a", 60), send("a", 70), fetch("a", "g", 2), Sync]);
    steps.extend([Update("a", |policy| policy.max_msgs = 2), Flush, send("a", 30), Sync, Kill]);
    steps.extend([Update("a", |policy| policy.max_msgs = 0), send("a", 30), send("a", 30)]);
    steps.extend([Checkpoint, Update("a", |policy| policy.latest = true), Sync, send("a", 9)]);
    steps.extend([Update("work", |policy| policy.work_queue = false), Sync, Close, Sync]);
    steps
}

/// A small generator: the same seed gives the same script.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

/// A random script of `len` steps over mailboxes that exist from the start.
pub fn random(dice: &mut Dice, len: usize) -> Vec<Step> {
    let addresses = ["a", "work", "limit", "last", "fail", "wfail", "mem"];
    let mut steps = addresses.map(create).to_vec();
    while steps.len() < len {
        let address = dice.one(&addresses);
        let group = dice.one(&["g", "h"]);
        let step = match dice.below(25) {
            0..=7 => Step::Send(address, random_with(dice, address)),
            8..=10 => Step::Fetch(address, group, dice.one(&["one", "two"]), dice.one(&[1, 3, 9])),
            11..=13 => {
                let kind = dice.one(&[DONE, ONLY, RETURN, REST, TERMINATE, AckKind::Progress]);
                Step::Ack(address, group, kind, dice.below(9) as usize)
            }
            14 if dice.below(4) == 0 => Step::Purge(address),
            14 => Step::Delete(dice.one(&["a", "work", "fail"]), dice.below(9) as usize),
            15 => dice.one(&[create, Step::Remove])(dice.one(&["a", "work"])),
            16 => Step::Wait(dice.one(&[200, 1_000, 31_000])),
            17 => Step::Flush,
            18 | 19 => Step::Sync,
            20 => Step::Checkpoint,
            21 => Step::Maintain,
            23 => Step::RemoveGroup(address, group),
            22 => Step::Pin("a", group, dice.one(&[Start::Latest, Start::Earliest])),
            _ => match dice.below(3) {
                0 => Step::Close,
                1 => Step::Kill,
                _ => Step::Rotate,
            },
        };
        steps.push(step);
    }
    steps
}

fn random_with(dice: &mut Dice, address: &str) -> With {
    let level = dice.one(&[1, 5, 9]);
    let mut key = dice.one(&["", "", "", "k", "l"]);
    let (mut delay_ms, mut ttl_ms) = (0, 0);
    if address != "limit" {
        delay_ms = dice.one(&[0, 0, 0, 300, 20_000]);
        ttl_ms = dice.one(&[0, 0, 0, 900, 24 * HOUR]);
    }
    // Those of one key have one name, and a dead letter must have one of its own.
    if delay_ms > 0 && address.ends_with("fail") {
        key = "";
    }
    With { level, key, delay_ms, ttl_ms, size: dice.one(&[5, 90, 400, 900]) }
}
