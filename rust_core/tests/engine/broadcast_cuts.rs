//! Stored broadcasts while the power goes at every operation of the disk: what somebody heard or was promised is
//! there afterwards, in the same order and under the same numbers.

use std::sync::Arc;

use mq9_core::protocol::WireOptions;
use mq9_core::store::{BroadcastLimits, Options};
use mq9_sim::SimDisk;

use crate::broadcasts::stored;
use crate::driver::{Driver, START};
use crate::push::given;

const OPTIONS: Options = Options {
    segment_bytes: 4096,
    allocate_bytes: 4096,
    sync: mq9_core::log::SyncMode::Always,
    ack_wait_ms: 30_000,
    max_groups: 16,
    group_ttl_ms: 0,
    quotas: mq9_core::store::Quotas::DEFAULT,
    checkpoint_bytes: 6_000,
};
/// So few that the oldest go meanwhile.
const KEPT: usize = 12;
const BROADCASTS: usize = 40;

fn open(disk: &SimDisk) -> Option<Driver> {
    let broadcasts = BroadcastLimits { max_msgs: KEPT as u64, ..BroadcastLimits::default() };
    let served = WireOptions { broadcasts, ..WireOptions::default() };
    Driver::serving(Arc::new(disk.clone()), OPTIONS, served, START).ok()
}

/// Payloads as they were heard, with the numbers in them.
fn heard(driver: &mut Driver, id: u32) -> Vec<String> {
    let all = given(driver, id).into_iter();
    all.map(|line| line.split(' ').nth(2).unwrap_or_default().to_owned()).collect()
}

/// Tells broadcasts until the power goes; what was heard live, and how many were promised.
fn run(disk: &SimDisk) -> (Vec<String>, usize) {
    let mut live = Vec::new();
    let mut promised = 0;
    let Some(mut driver) = open(disk) else { return (live, promised) };
    let (sender, listener) = (driver.client(), driver.client());
    driver.feed(listener, b"SUB $mq9.AI.BROADCAST.> 2\r\n");
    for nth in 0..BROADCASTS {
        let text = stored("a.b", &format!("in{sender}.{nth}"), "", &format!("{nth:0200}"));
        driver.feed(sender, text.as_bytes());
        driver.release();
        if nth % 3 == 0 {
            let _ = driver.store().sync();
            driver.release();
            let _ = driver.store().checkpoint();
        }
        live.extend(heard(&mut driver, listener));
        let answers = driver.heard(sender);
        promised += answers.iter().filter(|answer| answer.contains(r#""error":"""#)).count();
        if disk.is_cut() {
            break;
        }
    }
    (live, promised)
}

#[test]
fn what_was_heard_or_promised_is_there_after_a_power_cut_at_any_operation() {
    let whole = SimDisk::new();
    let (all, promised) = run(&whole);
    assert_eq!(promised, all.len());
    let ops = whole.ops();
    assert!(ops > 30, "{ops}");
    let mut cut_between = 0;
    for at in 0..ops {
        let disk = SimDisk::new();
        disk.cut_at(at);
        let (live, promised) = run(&disk);
        assert!(disk.is_cut(), "operation {at}");
        let known = live.len().max(promised);
        cut_between += usize::from(known > 0 && known < BROADCASTS);
        let seeds = (0..3).map(|seed| disk.crash(seed));
        for (how, after) in
            [disk.crash_strict(), disk.crash_lucky()].into_iter().chain(seeds).enumerate()
        {
            let mut driver = open(&after).unwrap();
            let reader = driver.client();
            driver.feed(reader, b"SUB $mq9.AI.BROADCAST.> 2\r\n");
            driver.settle();
            let found = heard(&mut driver, reader);
            let numbers: Vec<usize> =
                found.iter().map(|payload| payload.parse().unwrap()).collect();
            let shown = format!("cut {at}, {how}: {known} known, {numbers:?}");
            assert!(numbers.is_sorted_by(|a, b| a < b), "{shown}");
            // Without what was not durable; else a broadcast may be there and not yet that it made another go.
            assert!(how > 0 || numbers.len() <= KEPT, "{shown}");
            // Of what was not durable anything may be lost; the rest made room for those behind it, and for no others.
            let last = numbers.last().copied().unwrap_or_default();
            let kept = (0..known).filter(|nth| nth + KEPT > last);
            let lost: Vec<usize> = kept.filter(|nth| !numbers.contains(nth)).collect();
            assert!(lost.is_empty(), "{lost:?} are lost, {shown}");
        }
    }
    assert!(cut_between > 20, "{cut_between}");
}
