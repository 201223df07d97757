//! What delivering and acknowledging costs per message: `cargo run --release --example group_cost`.

use std::time::Instant;

use mq9_core::group::{Delivered, FetchLimits, Group, Member, Pick};
use mq9_core::log::Lsn;
use mq9_core::mailbox::{Entry, LEVELS, Lane, Level};

const MESSAGES: u64 = 400_000;

/// The best of some rounds: a busy machine only ever adds.
fn best(round: impl Fn() -> f64) -> f64 {
    (0..25).map(|_| round()).fold(f64::INFINITY, f64::min)
}

/// Batches that go out before the first is acknowledged, each to a member of its own.
fn apply_only(batch: u64, in_flight: u64) -> f64 {
    let mut group = Group::new([0; LEVELS]);
    let mut acked = Vec::new();
    let begin = Instant::now();
    for number in 0..MESSAGES / batch + in_flight {
        if number < MESSAGES / batch {
            let member = Member::Conn { epoch: 1, conn: number % in_flight };
            let ids = number * batch..(number + 1) * batch;
            let rows = ids.map(|msg_id| Delivered { level: Level::NORMAL, msg_id, count: 1 });
            group.apply_delivered(&member, rows, Some(30_000 + number));
        }
        // Just before the member of the oldest batch is given its next one.
        if let Some(oldest) = (number + 1).checked_sub(in_flight) {
            acked.clear();
            group.plan_ack((oldest + 1) * batch - 1, Some(Level::NORMAL), true, &mut acked);
            group.apply_acked(acked.iter().copied());
        }
    }
    assert_eq!((group.outstanding(), group.leases(), group.holders()), (0, 0, 0));
    begin.elapsed().as_nanos() as f64 / MESSAGES as f64
}

/// The same with one member and the plan of the fetch included, as the store does it.
fn whole_fetch(batch: usize) -> f64 {
    let mut lane = Lane::default();
    for msg_id in 0..MESSAGES {
        lane.put(Entry { msg_id, at: Lsn::NONE, len: 100, create_ms: 0, flags: 0 });
    }
    let lanes = [(Level::NORMAL, lane)];
    let limits = FetchLimits {
        max_msgs: batch,
        max_bytes: u64::MAX,
        max_level: Level::NOTIFY,
        max_deliver: 5,
        max_ack_pending: 100_000,
    };
    let member = Member::named("worker");
    let mut group = Group::new([0; LEVELS]);
    let mut acked = Vec::new();
    let begin = Instant::now();
    loop {
        let plan = group.plan_fetch(&member, &lanes, &limits);
        let Some(last) = plan.picks.last() else { break };
        group.apply_delivered(&member, plan.picks.iter().map(Pick::delivered), Some(30_000));
        acked.clear();
        group.plan_ack(last.entry.msg_id, Some(last.level), true, &mut acked);
        group.apply_acked(acked.iter().copied());
    }
    begin.elapsed().as_nanos() as f64 / MESSAGES as f64
}

fn main() {
    for (batch, in_flight) in [(1, 1), (10, 1), (100, 1), (100, 100), (100, 2000), (1000, 10)] {
        let ns = best(|| apply_only(batch, in_flight));
        println!("batch {batch}, {in_flight} in flight: deliver + ack {ns:.1} ns per message");
    }
    for batch in [1, 100] {
        let ns = best(|| whole_fetch(batch));
        println!("batch {batch}: plan + deliver + ack {ns:.1} ns per message");
    }
}
