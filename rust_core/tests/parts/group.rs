//! Promises of a consumer group, one example per sentence.

#![allow(clippy::unwrap_used)]

use mq9_core::group::{Delivered, FetchLimits, Group, Member, Pick, Plan};
use mq9_core::log::Lsn;
use mq9_core::mailbox::{Entry, LEVELS, Lane, Level};

use crate::group_held::hold;

const URGENT: Level = Level::URGENT;
pub const NORMAL: Level = Level::NORMAL;

pub const ALL: FetchLimits = FetchLimits {
    max_msgs: 100,
    max_bytes: u64::MAX,
    max_level: Level::NOTIFY,
    max_deliver: 0,
    max_ack_pending: 0,
    held: true,
    conn: 99,
};

fn up_to(max_msgs: usize) -> FetchLimits {
    FetchLimits { max_msgs, ..ALL }
}

pub fn lane(level: Level, ids: impl IntoIterator<Item = u64>) -> (Level, Lane) {
    let mut lane = Lane::default();
    for msg_id in ids {
        lane.put(Entry { msg_id, at: Lsn::NONE, len: 10, create_ms: 0, flags: 0 });
    }
    (level, lane)
}

pub fn m(number: u64) -> Member {
    Member::Conn { epoch: 1, conn: number }
}

pub fn group() -> Group {
    Group::new([0; LEVELS])
}

pub fn ids(picks: &[Pick]) -> Vec<u64> {
    picks.iter().map(|pick| pick.entry.msg_id).collect()
}

pub fn counts(picks: &[Pick]) -> Vec<u32> {
    picks.iter().map(|pick| pick.count).collect()
}

pub fn deliver(group: &mut Group, member: &Member, plan: &Plan, until: u64) {
    group.apply_delivered(member, plan.picks.iter().map(Pick::delivered), hold(until), false);
}

/// Fetches with a lease until 1000, and says which messages came.
pub fn fetch(
    group: &mut Group,
    member: &Member,
    lanes: &[(Level, Lane)],
    limits: FetchLimits,
) -> Vec<u64> {
    let plan = group.plan_fetch(member, lanes, &limits);
    deliver(group, member, &plan, 1000);
    ids(&plan.picks)
}

fn would_ack(group: &Group, msg_id: u64) -> Vec<u64> {
    let mut out = Vec::new();
    group.plan_acks([(msg_id, None)].into_iter(), true, &mut out).unwrap();
    assert!(!out.is_empty());
    out
}

/// Which messages an ACK of one message would confirm.
fn plan_one(group: &Group, msg_id: u64, level: Option<Level>) -> Result<Vec<u64>, u64> {
    let mut out = Vec::new();
    group.plan_acks([(msg_id, level)].into_iter(), true, &mut out).map(|()| out)
}

/// The group has done with the message.
const DONE: Result<Vec<u64>, u64> = Ok(Vec::new());

/// Acknowledges up to `msg_id`, and says which messages that confirmed.
fn ack(group: &mut Group, msg_id: u64) -> Vec<u64> {
    let out = would_ack(group, msg_id);
    assert_eq!(group.apply_acked(out.iter().copied()), out.len());
    out
}

fn one(level: Level, msg_id: u64, count: u32) -> Delivered {
    Delivered { level, msg_id, count }
}

#[test]
fn a_fetch_is_ordered_by_level_and_then_by_msg_id() {
    let lanes = [lane(URGENT, [2, 5]), lane(NORMAL, [0, 1, 3]), lane(Level::NOTIFY, [4])];
    assert_eq!(fetch(&mut group(), &m(1), &lanes, ALL), [2, 5, 0, 1, 3, 4]);
}

#[test]
fn within_a_level_redeliveries_come_before_new_messages() {
    let lanes = [lane(URGENT, [4, 9]), lane(NORMAL, [0, 1, 2, 3, 8])];
    let mut g = group();
    g.apply_delivered(
        &m(1),
        [one(URGENT, 4, 1), one(NORMAL, 0, 1), one(NORMAL, 1, 1)],
        hold(9),
        false,
    );
    g.apply_delivered(&m(2), [one(NORMAL, 2, 1)], hold(9), false);
    g.nak(2, None);
    let plan = g.plan_fetch(&m(1), &lanes, &ALL);
    assert_eq!(ids(&plan.picks), [4, 9, 0, 1, 2, 3, 8]);
    assert_eq!(counts(&plan.picks), [2, 1, 2, 2, 2, 1, 1]);
}

#[test]
fn a_fetch_is_cut_at_max_msgs_over_the_whole_order() {
    let lanes = [lane(URGENT, [3, 4]), lane(NORMAL, [0, 1, 2])];
    let mut g = group();
    assert_eq!(fetch(&mut g, &m(1), &lanes, up_to(3)), [3, 4, 0]);
    assert!(g.plan_fetch(&m(2), &lanes, &up_to(0)).is_empty());
    assert_eq!(fetch(&mut g, &m(2), &lanes, up_to(3)), [1, 2]);
}

#[test]
fn a_fetch_is_cut_at_max_bytes_but_never_below_one_message() {
    let lanes = [lane(NORMAL, 0..5)];
    let bytes = |max_bytes| FetchLimits { max_bytes, ..ALL };
    let planned = |max_bytes| ids(&group().plan_fetch(&m(1), &lanes, &bytes(max_bytes)).picks);
    assert_eq!(planned(0), [0]);
    assert_eq!(planned(9), [0]);
    assert_eq!(planned(19), [0]);
    assert_eq!(planned(20), [0, 1]);
    assert_eq!(planned(29), [0, 1]);
}

#[test]
fn a_fetch_takes_no_level_less_important_than_asked_for() {
    let lanes = [lane(URGENT, [1]), lane(NORMAL, [0]), lane(Level::NOTIFY, [2])];
    let limits = FetchLimits { max_level: NORMAL, ..ALL };
    assert_eq!(fetch(&mut group(), &m(1), &lanes, limits), [1, 0]);
}

#[test]
fn a_group_begins_where_it_was_pinned() {
    let mut start = [0; LEVELS];
    start[NORMAL.index()] = 2;
    let mut g = Group::new(start);
    assert_eq!(fetch(&mut g, &m(1), &[lane(NORMAL, 0..4)], ALL), [2, 3]);
    assert_eq!(g.start(), &start);
    assert_eq!(g.cursors()[NORMAL.index()], 4);
}

#[test]
fn planning_changes_nothing() {
    let lanes = [lane(NORMAL, 0..3)];
    let g = group();
    assert_eq!(g.plan_fetch(&m(1), &lanes, &ALL), g.plan_fetch(&m(1), &lanes, &ALL));
    assert_eq!((g.outstanding(), g.holders(), g.leases()), (0, 0, 0));
}

#[test]
fn a_member_that_fetches_again_gets_its_unacknowledged_messages_again() {
    let lanes = [lane(NORMAL, 0..4)];
    let mut g = group();
    assert_eq!(fetch(&mut g, &m(1), &lanes, up_to(3)), [0, 1, 2]);
    g.apply_acked([1]);
    let plan = g.plan_fetch(&m(1), &lanes, &ALL);
    assert_eq!(ids(&plan.picks), [0, 2, 3]);
    assert_eq!(counts(&plan.picks), [2, 2, 1]);
}

#[test]
fn messages_leased_to_another_member_are_skipped_until_the_lease_ends() {
    let lanes = [lane(NORMAL, 0..4)];
    let mut g = group();
    fetch(&mut g, &m(1), &lanes, up_to(2));
    assert_eq!(fetch(&mut g, &m(2), &lanes, up_to(1)), [2]);
    assert_eq!(g.next_deadline_ms(), Some(1000));
    assert_eq!(g.expire_leases(999), 0);
    assert_eq!(ids(&g.plan_fetch(&m(3), &lanes, &ALL).picks), [3]);
    assert_eq!(g.expire_leases(1000), 3);
    assert_eq!(g.next_deadline_ms(), None);
    assert_eq!(ids(&g.plan_fetch(&m(3), &lanes, &ALL).picks), [0, 1, 2, 3]);
}

#[test]
fn a_refetch_that_brings_less_detaches_the_rest() {
    let lanes = [lane(NORMAL, 1..=10)];
    let mut g = group();
    fetch(&mut g, &m(1), &lanes, ALL);
    assert_eq!(fetch(&mut g, &m(1), &lanes, up_to(5)), [1, 2, 3, 4, 5]);
    assert_eq!(g.pending(6).unwrap().member, None);
    assert_eq!(g.pending(6).unwrap().until_mono_ms, None);
    assert_eq!(would_ack(&g, 8), [8]);
    assert_eq!(ids(&g.plan_fetch(&m(2), &lanes, &ALL).picks), [6, 7, 8, 9, 10]);
    assert_eq!(ack(&mut g, 5), [1, 2, 3, 4, 5]);
    assert_eq!(g.outstanding(), 5);
}

#[test]
fn a_fetch_of_important_levels_only_detaches_the_others() {
    let lanes = [lane(URGENT, [1]), lane(NORMAL, [0])];
    let mut g = group();
    fetch(&mut g, &m(1), &lanes, ALL);
    assert_eq!(fetch(&mut g, &m(1), &lanes, FetchLimits { max_level: URGENT, ..ALL }), [1]);
    assert_eq!(ack(&mut g, 1), [1]);
    assert_eq!(ids(&g.plan_fetch(&m(2), &lanes, &ALL).picks), [0]);
}

#[test]
fn a_fetch_that_brings_nothing_changes_nothing() {
    let lanes = [lane(NORMAL, 0..2)];
    let mut g = group();
    fetch(&mut g, &m(1), &lanes, ALL);
    g.apply_delivered(&m(1), [], hold(5000), false);
    g.apply_delivered(&m(2), [], hold(5000), false);
    assert_eq!((g.holders(), g.leases(), g.next_deadline_ms()), (1, 1, Some(1000)));
    assert_eq!(ack(&mut g, 1), [0, 1]);
}

#[test]
fn one_ack_confirms_a_batch_whatever_its_priorities() {
    let lanes = [lane(URGENT, [7]), lane(NORMAL, [0, 3]), lane(Level::NOTIFY, [1])];
    let mut g = group();
    assert_eq!(fetch(&mut g, &m(1), &lanes, ALL), [7, 0, 3, 1]);
    assert_eq!(would_ack(&g, 0), [7, 0]);
    assert_eq!(ack(&mut g, 1), [7, 0, 3, 1]);
    assert_eq!((g.outstanding(), g.holders(), g.leases()), (0, 0, 0));
}

#[test]
fn an_urgent_ack_never_skips_an_undelivered_normal_message() {
    let lanes = [lane(URGENT, [5]), lane(NORMAL, [0, 1, 2])];
    let mut g = group();
    assert_eq!(fetch(&mut g, &m(1), &lanes, up_to(1)), [5]);
    assert_eq!(ack(&mut g, 5), [5]);
    assert_eq!(fetch(&mut g, &m(1), &lanes, ALL), [0, 1, 2]);
}

#[test]
fn an_ack_acts_on_the_member_that_last_received_the_message() {
    let lanes = [lane(NORMAL, 1..=10)];
    let mut g = group();
    fetch(&mut g, &m(1), &lanes, ALL);
    g.expire_leases(1000);
    assert_eq!(fetch(&mut g, &m(2), &lanes, up_to(5)), [1, 2, 3, 4, 5]);
    assert_eq!(would_ack(&g, 10), [6, 7, 8, 9, 10]);
    assert_eq!(ack(&mut g, 5), [1, 2, 3, 4, 5]);
    assert_eq!(ack(&mut g, 10), [6, 7, 8, 9, 10]);
    assert_eq!(g.outstanding(), 0);
}

#[test]
fn an_ack_counts_after_the_lease_expired_and_the_member_is_gone() {
    let lanes = [lane(NORMAL, 0..4)];
    let mut g = group();
    fetch(&mut g, &m(1), &lanes, ALL);
    assert_eq!(g.release_member(&m(1)), 4);
    assert_eq!(g.release_member(&m(1)), 0);
    assert_eq!(g.leases(), 0);
    assert_eq!(ack(&mut g, 2), [0, 1, 2]);
    assert_eq!(ids(&g.plan_fetch(&m(2), &lanes, &ALL).picks), [3]);
}

#[test]
fn an_only_ack_confirms_just_that_message() {
    let lanes = [lane(NORMAL, 0..4)];
    let mut g = group();
    fetch(&mut g, &m(1), &lanes, ALL);
    let mut out = vec![77];
    g.plan_acks([(2, Some(NORMAL))].into_iter(), false, &mut out).unwrap();
    assert_eq!(out, [77, 2]);
    g.apply_acked([2]);
    assert_eq!(ack(&mut g, 3), [0, 1, 3]);
}

#[test]
fn acking_twice_is_done_and_acking_what_was_never_given_is_refused() {
    let lanes = [lane(URGENT, [4]), lane(NORMAL, [1, 2, 3, 6])];
    let mut start = [0; LEVELS];
    start[NORMAL.index()] = 2;
    let mut g = Group::new(start);
    fetch(&mut g, &m(1), &lanes, up_to(3));
    ack(&mut g, 3);
    let plan = |msg_id, level| plan_one(&g, msg_id, level);
    assert_eq!(plan(3, Some(NORMAL)), DONE);
    assert_eq!(plan(4, Some(URGENT)), DONE);
    assert_eq!(plan(1, Some(NORMAL)), Err(1), "before the start");
    assert_eq!(plan(6, Some(NORMAL)), Err(6), "not yet delivered");
    assert_eq!(plan(6, None), Err(6));
    assert_eq!(plan(1, None), DONE, "gone, and may have been urgent");
    assert_eq!(plan(4, Some(NORMAL)), Err(4), "the other level decides");
}

#[test]
fn a_nak_returns_a_message_at_once_and_takes_it_from_its_member() {
    let lanes = [lane(NORMAL, 0..4)];
    let mut g = group();
    fetch(&mut g, &m(1), &lanes, ALL);
    assert!(g.nak(1, None));
    assert!(!g.nak(9, None));
    assert_eq!(would_ack(&g, 1), [1]);
    assert_eq!(would_ack(&g, 3), [0, 2, 3]);
    let plan = g.plan_fetch(&m(2), &lanes, &ALL);
    assert_eq!((ids(&plan.picks), counts(&plan.picks)), (vec![1], vec![2]));
}

#[test]
fn a_parked_message_is_nobodys_until_its_deadline() {
    let lanes = [lane(NORMAL, 0..3)];
    let mut g = group();
    fetch(&mut g, &m(1), &lanes, ALL);
    assert!(g.nak(1, Some(500)));
    assert_eq!(g.next_deadline_ms(), Some(500));
    assert_eq!(fetch(&mut g, &m(1), &lanes, ALL), [0, 2]);
    assert!(g.plan_fetch(&m(2), &lanes, &ALL).is_empty());
    assert_eq!(g.release_member(&m(1)), 2);
    assert!(!g.progress(1, 9000));
    assert_eq!(g.expire_leases(499), 0);
    assert_eq!(g.expire_leases(500), 1);
    assert_eq!(ids(&g.plan_fetch(&m(2), &lanes, &ALL).picks), [0, 1, 2]);
}

#[test]
fn progress_extends_the_lease_of_one_message_and_never_shortens_it() {
    let lanes = [lane(NORMAL, 0..3)];
    let mut g = group();
    fetch(&mut g, &m(1), &lanes, ALL);
    assert!(g.progress(1, 2000));
    assert!(g.progress(1, 1500));
    assert!(!g.progress(9, 2000));
    assert_eq!(g.leases(), 2);
    assert_eq!(g.expire_leases(1999), 2);
    assert_eq!(g.next_deadline_ms(), Some(2000));
    assert_eq!(ids(&g.plan_fetch(&m(2), &lanes, &ALL).picks), [0, 2]);
    assert_eq!(ack(&mut g, 2), [0, 1, 2], "progress does not change the order");
    assert_eq!(g.next_deadline_ms(), None);
}

#[test]
fn progress_after_the_lease_ended_takes_the_message_back_if_nobody_else_did() {
    let lanes = [lane(NORMAL, 0..2)];
    let mut g = group();
    fetch(&mut g, &m(1), &lanes, ALL);
    g.expire_leases(1000);
    assert!(g.progress(0, 3000));
    assert_eq!(ids(&g.plan_fetch(&m(2), &lanes, &ALL).picks), [1]);
    assert_eq!(g.pending(0).unwrap().until_mono_ms, Some(3000));
}

#[test]
fn a_lease_ends_with_its_last_message() {
    let lanes = [lane(NORMAL, 0..4)];
    let mut g = group();
    fetch(&mut g, &m(1), &lanes, up_to(2));
    fetch(&mut g, &m(2), &lanes, up_to(2));
    assert_eq!(g.leases(), 2);
    g.apply_acked([0]);
    assert_eq!(g.leases(), 2);
    g.apply_acked([1]);
    assert_eq!((g.leases(), g.holders()), (1, 1));
    g.forget(2);
    g.nak(3, None);
    assert_eq!((g.leases(), g.holders(), g.next_deadline_ms()), (0, 0, None));
}

#[test]
fn a_message_delivered_max_deliver_times_is_dead_and_does_not_count_against_max_msgs() {
    let lanes = [lane(NORMAL, 0..5)];
    let mut g = group();
    g.apply_delivered(
        &m(1),
        [one(NORMAL, 0, 3), one(NORMAL, 1, 2), one(NORMAL, 2, 3)],
        hold(1000),
        false,
    );
    g.release_member(&m(1));
    let limits = FetchLimits { max_deliver: 3, max_msgs: 2, ..ALL };
    for member in [m(1), m(2)] {
        let plan = g.plan_fetch(&member, &lanes, &limits);
        assert_eq!((ids(&plan.picks), counts(&plan.picks)), (vec![1, 3], vec![3, 1]));
        assert_eq!((ids(&plan.dead), counts(&plan.dead)), (vec![0, 2], vec![3, 3]));
    }
    let plan = g.plan_fetch(&m(2), &lanes, &limits);
    g.apply_acked(ids(&plan.dead));
    deliver(&mut g, &m(2), &plan, 1000);
    assert_eq!((g.outstanding(), g.holders()), (2, 1));
}

#[test]
fn max_ack_pending_holds_back_new_messages_only() {
    let lanes = [lane(URGENT, [9]), lane(NORMAL, 0..8)];
    let limits = FetchLimits { max_ack_pending: 3, max_deliver: 2, ..ALL };
    let mut g = group();
    g.apply_delivered(
        &m(1),
        [one(NORMAL, 0, 1), one(NORMAL, 1, 1), one(NORMAL, 2, 1)],
        None,
        false,
    );
    assert_eq!(ids(&g.plan_fetch(&m(1), &lanes, &limits).picks), [0, 1, 2]);
    assert_eq!(ids(&g.plan_fetch(&m(2), &lanes, &limits).picks), [0, 1, 2]);
    g.apply_acked([0]);
    assert_eq!(ids(&g.plan_fetch(&m(2), &lanes, &limits).picks), [9, 1, 2]);
    g.apply_delivered(
        &m(2),
        [one(URGENT, 9, 1), one(NORMAL, 1, 2), one(NORMAL, 2, 2)],
        None,
        false,
    );
    let plan = g.plan_fetch(&m(2), &lanes, &limits);
    assert_eq!((ids(&plan.picks), ids(&plan.dead)), (vec![9, 3, 4], vec![1, 2]), "dead make room");
}

#[test]
fn a_replayed_delivery_is_available_at_once_and_still_acknowledged_in_order() {
    let lanes = [lane(NORMAL, 0..4)];
    let mut g = group();
    g.apply_delivered(&m(1), (0..3).map(|id| one(NORMAL, id, 1)), None, false);
    assert_eq!(g.next_deadline_ms(), None);
    assert_eq!(ids(&g.plan_fetch(&m(2), &lanes, &ALL).picks), [0, 1, 2, 3]);
    assert_eq!(would_ack(&g, 1), [0, 1]);
    assert!(g.progress(2, 50));
    assert_eq!(ids(&g.plan_fetch(&m(2), &lanes, &ALL).picks), [0, 1, 3]);
    assert_eq!(ack(&mut g, 2), [0, 1, 2]);
}

#[test]
fn cursors_pass_over_removed_messages() {
    let lanes = [lane(NORMAL, [0, 5, 9])];
    let mut g = group();
    assert_eq!(fetch(&mut g, &m(1), &lanes, up_to(2)), [0, 5]);
    assert_eq!(g.cursors()[NORMAL.index()], 6);
    assert_eq!(fetch(&mut g, &m(2), &lanes, ALL), [9]);
}

#[test]
fn an_ack_of_a_removed_message_confirms_what_came_before_it() {
    let mut lanes = [lane(NORMAL, 0..3)];
    let mut g = group();
    fetch(&mut g, &m(1), &lanes, ALL);
    lanes[0].1.remove(1);
    assert!(g.forget(1));
    assert!(!g.forget(1));
    assert_eq!(g.outstanding(), 2);
    assert_eq!(plan_one(&g, 1, None), Ok(vec![0]));
    assert_eq!(g.plan_acks([(1, None)].into_iter(), false, &mut Vec::new()), Ok(()));
    // A new batch does not hold it, so that an ACK of it says nothing any more.
    assert_eq!(fetch(&mut g, &m(1), &lanes, ALL), [0, 2]);
    assert_eq!(plan_one(&g, 1, None), DONE);
}

#[test]
fn a_reset_forgets_everything_and_pins_anew() {
    let lanes = [lane(NORMAL, 0..6)];
    let mut g = group();
    fetch(&mut g, &m(1), &lanes, ALL);
    g.reset([4; LEVELS]);
    assert_eq!((g.outstanding(), g.holders(), g.leases()), (0, 0, 0));
    assert_eq!(plan_one(&g, 3, Some(NORMAL)), Err(3));
    assert_eq!(fetch(&mut g, &m(1), &lanes, ALL), [4, 5]);
}

#[test]
fn a_message_named_twice_in_a_batch_is_delivered_once_at_its_last_place() {
    let mut g = group();
    let twice = [one(NORMAL, 0, 1), one(NORMAL, 1, 1), one(NORMAL, 0, 2)];
    g.apply_delivered(&m(1), twice, hold(10), false);
    assert_eq!(would_ack(&g, 1), [1]);
    assert_eq!(would_ack(&g, 0), [1, 0]);
    assert_eq!(g.expire_leases(10), 2);
    ack(&mut g, 0);
    assert_eq!((g.outstanding(), g.holders(), g.leases()), (0, 0, 0));
}

#[test]
fn acking_a_large_batch_one_by_one_from_the_front_stays_linear() {
    let mut g = group();
    g.apply_delivered(&m(1), (0..200_000).map(|id| one(NORMAL, id, 1)), hold(10), false);
    for id in (1..200_000).step_by(2) {
        g.apply_acked([id]);
    }
    for id in (0..200_000).step_by(2) {
        assert_eq!(ack(&mut g, id), [id]);
    }
    assert_eq!((g.outstanding(), g.holders(), g.leases()), (0, 0, 0));
}

#[test]
fn fetching_again_and_again_without_ack_keeps_no_trace_of_earlier_batches() {
    let lanes = [lane(NORMAL, 0..10)];
    let mut g = group();
    let mut size_after = |rounds: usize| {
        for _ in 0..rounds {
            fetch(&mut g, &m(1), &lanes, ALL);
            g.progress(3, 2000);
            g.apply_acked([5]);
        }
        format!("{g:?}").len()
    };
    let first = size_after(2);
    assert!(size_after(500) < 2 * first);
}

#[test]
fn a_decoded_group_is_the_same_with_its_leases_dropped() {
    let lanes = [lane(URGENT, [7]), lane(NORMAL, 0..6)];
    let mut g = group();
    fetch(&mut g, &Member::named("ä"), &lanes, up_to(3));
    fetch(&mut g, &m(4), &lanes, up_to(3));
    g.nak(3, Some(500));
    let mut bytes = Vec::new();
    g.snapshot().encode(&mut bytes);
    let mut d = Group::decode(&bytes).unwrap();
    assert_eq!((d.outstanding(), d.holders(), d.leases()), (6, 2, 0));
    assert_eq!((d.start(), d.cursors()), (g.start(), g.cursors()));
    assert_eq!(would_ack(&d, 1), [7, 0, 1]);
    assert_eq!(would_ack(&d, 3), [3]);
    assert_eq!(ids(&d.plan_fetch(&m(9), &lanes, &ALL).picks), [7, 0, 1, 2, 3, 4, 5]);
    assert_eq!(ack(&mut d, 4), [2, 4]);
}

#[test]
fn an_ack_of_a_removed_message_confirms_what_came_before_it_after_a_restart_too() {
    let mut g = group();
    fetch(&mut g, &m(1), &[lane(NORMAL, 0..3)], ALL);
    g.forget(1);
    let mut bytes = Vec::new();
    g.snapshot().encode(&mut bytes);
    let mut d = Group::decode(&bytes).unwrap();
    // The store finds again that the message is not there.
    assert!(d.forget(1));
    assert_eq!(plan_one(&d, 1, None), Ok(vec![0]));
}

#[test]
fn a_group_has_exactly_these_bytes() {
    let mut start = [0u64; LEVELS];
    start[NORMAL.index()] = 2;
    let mut g = Group::new(start);
    let batch = [one(URGENT, 0x0102, 1), one(NORMAL, 2, 7), one(NORMAL, 3, 1)];
    g.apply_delivered(&Member::named("ab"), batch, hold(10), false);
    g.apply_delivered(&Member::Conn { epoch: 5, conn: 6 }, [one(NORMAL, 3, 2)], hold(10), false);
    g.nak(2, None);
    let mut cursors = start;
    cursors[URGENT.index()] = 0x0103;
    cursors[NORMAL.index()] = 4;
    let mut expected: Vec<u8> =
        start.iter().chain(&cursors).flat_map(|n| n.to_le_bytes()).collect();
    expected.extend([2, 0, 0, 0]);
    expected.extend([0, 2, 0, 0, 0, b'a', b'b']);
    expected.extend([1, 5, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend([3, 0, 0, 0]);
    expected.extend([2, 1, 0, 0, 0, 0, 0, 0, 3, 1, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend([2, 0, 0, 0, 0, 0, 0, 0, 5, 7, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    expected.extend([3, 0, 0, 0, 0, 0, 0, 0, 5, 2, 0, 0, 0, 1, 0, 0, 0]);
    let mut bytes = Vec::new();
    g.snapshot().encode(&mut bytes);
    assert_eq!(bytes, expected);
}

#[test]
fn malformed_checkpoints_are_refused() {
    let mut g = Group::new([1; LEVELS]);
    g.apply_delivered(&Member::named("a"), [one(NORMAL, 1, 1), one(NORMAL, 2, 1)], None, false);
    g.apply_delivered(&Member::named("b"), [one(NORMAL, 3, 1)], None, false);
    let mut good = Vec::new();
    g.snapshot().encode(&mut good);
    assert!(Group::decode(&good).is_some());
    for end in 0..good.len() {
        assert!(Group::decode(&good[..end]).is_none(), "cut at {end}");
    }
    let (members, deliveries) = (160, 160 + 4 + 6 + 6);
    let wrong = |what: &str, at: usize, value: u8| {
        let mut bytes = good.clone();
        assert_ne!(bytes[at], value, "{what}");
        bytes[at] = value;
        assert!(Group::decode(&bytes).is_none(), "{what}");
    };
    wrong("start after cursor", 0, 2);
    wrong("cursor at a pending message", 80 + 8 * NORMAL.index(), 3);
    wrong("too many members", members + 3, 0xff);
    wrong("unknown kind of member", members + 4, 2);
    wrong("hostile length of a name", members + 8, 0xff);
    wrong("name not UTF-8", members + 9, 0xff);
    wrong("the same member twice", members + 15, b'a');
    wrong("too few deliveries", deliveries, 2);
    wrong("hostile number of deliveries", deliveries + 3, 0xff);
    wrong("the same message twice", deliveries + 4 + 17, 1);
    wrong("level 0", deliveries + 4 + 8, 0);
    wrong("level 11", deliveries + 4 + 8, 11);
    wrong("member out of order", deliveries + 4 + 13, 1);
    wrong("member unknown", deliveries + 4 + 34 + 13, 2);
    wrong("member without deliveries", deliveries + 4 + 34 + 13, 0);
    assert!(Group::decode(&[&good[..], &[0]].concat()).is_none(), "trailing byte");
}
