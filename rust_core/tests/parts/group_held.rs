//! Messages that a member holds: given to it again as the same delivery, or left out.

use mq9_core::group::{FetchLimits, Group, Hold, Pick};

use crate::group::{ALL, NORMAL, counts, deliver, fetch, group, ids, lane, m};

/// A lease, from a connection that does not ask again.
pub fn hold(until_mono_ms: u64) -> Option<Hold> {
    Some(Hold { until_mono_ms, conn: 1 })
}

#[test]
fn what_a_member_holds_comes_again_as_the_same_delivery() {
    let lanes = [lane(NORMAL, 0..3)];
    let limits = FetchLimits { max_deliver: 1, conn: 1, ..ALL };
    let mut g = group();
    assert_eq!(fetch(&mut g, &m(1), &lanes, limits), [0, 1, 2]);
    for _ in 0..3 {
        let plan = g.plan_fetch(&m(1), &lanes, &limits);
        assert_eq!((ids(&plan.picks), counts(&plan.picks)), (vec![0, 1, 2], vec![1, 1, 1]));
        assert!(plan.picks.iter().all(|pick| pick.again) && plan.dead.is_empty());
        deliver(&mut g, &m(1), &plan, 1000);
    }
    // Longer, it is still the same.
    assert!(g.progress(0, 2000));
    assert!(g.plan_fetch(&m(1), &lanes, &limits).dead.is_empty());
    // Over another connection, or when the lease is over, it is another.
    let other = FetchLimits { conn: 2, ..limits };
    assert_eq!(ids(&g.plan_fetch(&m(1), &lanes, &other).dead), [0, 1, 2]);
    g.expire_leases(1000);
    assert_eq!(ids(&g.plan_fetch(&m(1), &lanes, &limits).dead), [1, 2]);
    assert_eq!(ids(&g.plan_fetch(&m(1), &lanes, &limits).picks), [0]);
}

#[test]
fn a_member_can_ask_for_others_than_it_holds() {
    let lanes = [lane(NORMAL, 0..6)];
    let others = FetchLimits { max_msgs: 2, held: false, conn: 1, ..ALL };
    let mut g = group();
    let mut batches = Vec::new();
    for _ in 0..3 {
        let plan = g.plan_fetch(&m(1), &lanes, &others);
        g.apply_delivered(&m(1), plan.picks.iter().map(Pick::delivered), hold(1000), true);
        batches.push(ids(&plan.picks));
    }
    assert_eq!(batches, [[0, 1], [2, 3], [4, 5]]);
    assert!(g.plan_fetch(&m(1), &lanes, &others).is_empty());
    assert!(g.plan_fetch(&m(2), &lanes, &ALL).is_empty());
    // One order for all of it, also when it was written down.
    let mut bytes = Vec::new();
    g.snapshot().encode(&mut bytes);
    for g in [&g, &Group::decode(&bytes).unwrap()] {
        let mut confirmed = Vec::new();
        g.plan_acks([(4, Some(NORMAL))].into_iter(), true, &mut confirmed).unwrap();
        assert_eq!(confirmed, [0, 1, 2, 3, 4]);
    }
    // What it no longer holds comes again, and counts.
    assert!(g.nak(3, None));
    let plan = g.plan_fetch(&m(1), &lanes, &others);
    assert_eq!((ids(&plan.picks), counts(&plan.picks)), (vec![3], vec![2]));
}

/// It holds its first message for ever, and asks for one after the other besides.
#[test]
fn what_is_remembered_of_a_member_does_not_grow_with_what_it_has_done() {
    let others = FetchLimits { max_msgs: 1, held: false, conn: 1, ..ALL };
    let mut g = group();
    let mut sizes = Vec::new();
    for n in 0..2_000 {
        let plan = g.plan_fetch(&m(1), &[lane(NORMAL, n..n + 1)], &others);
        assert_eq!(ids(&plan.picks), [n]);
        g.apply_delivered(&m(1), plan.picks.iter().map(Pick::delivered), hold(1000), true);
        if n > 0 {
            assert_eq!(g.apply_acked([n]), 1);
        }
        sizes.push(format!("{g:?}").len());
    }
    assert_eq!(g.outstanding(), 1);
    let most = sizes.iter().max().unwrap();
    assert!(*most < 2 * sizes[100], "{most} characters, {} after a hundred", sizes[100]);
}
