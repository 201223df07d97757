//! Cursors, and runs of messages that are given again or held.

use mq9_core::mailbox::Level;
use mq9_core::store::{Held, Position};

fn runs(position: &Position) -> Vec<(u64, u64)> {
    position.again_at(Level::NORMAL).map(|run| (run.start, run.end)).collect()
}

#[test]
fn runs_are_joined_split_and_used_up() {
    let mut position = Position::default();
    position.pass(Level::NORMAL, 99);
    assert_eq!(position.cursors[Level::NORMAL.index()], 100);
    for (start, end) in [(20, 30), (0, 10), (40, 50), (30, 40), (10, 20)] {
        position.give_again((Level::NORMAL, start, end));
    }
    assert_eq!(runs(&position), [(0, 50)]);
    position.give_again((Level::URGENT, 50, 60));
    for msg_id in [7, 0, 49, 49, 55] {
        position.pass(Level::NORMAL, msg_id);
    }
    assert_eq!(runs(&position), [(1, 7), (8, 49)]);
    for msg_id in 1..49 {
        position.pass(Level::NORMAL, msg_id);
    }
    assert_eq!((runs(&position), position.runs()), (vec![], 1));
    assert_eq!(position.cursors[Level::NORMAL.index()], 100);
}

#[test]
fn what_has_left_the_mailbox_is_taken_out_in_steps() {
    let mut position = Position::default();
    position.pass(Level::NORMAL, 99);
    for start in (0..100).step_by(10) {
        position.give_again((Level::NORMAL, start, start + 5));
    }
    // Of all there was, 72 and 90 are left.
    let next = |_, from: u64| [72, 90].into_iter().find(|id| *id >= from);
    assert!(!position.trim(4, next));
    assert_eq!(position.runs(), 6);
    assert!(position.trim(4, next));
    assert_eq!(runs(&position), [(72, 75), (80, 85), (90, 95)]);
    position.pass(Level::NORMAL, 72);
    assert!(position.trim(4, next));
    assert_eq!(runs(&position), [(90, 95)]);
}

#[test]
fn what_has_left_the_mailbox_is_not_kept() {
    let mut held = Held::default();
    // Each is gone when the tenth after it comes, but for every thousandth.
    for id in (0..100_000).step_by(2) {
        let kept = |of: u64| of.is_multiple_of(1000) || of + 20 > id;
        held.add(Level::NORMAL, id, |_, from| (from..=id).step_by(2).find(|of| kept(*of)));
        let most = 8 * (id / 1000 + 12) as usize;
        assert!(held.runs() <= most, "{} runs at {id}", held.runs());
    }
    let ids: Vec<u64> = held.into_runs().iter().map(|(_, start, _)| *start).collect();
    assert!((0..100).all(|nth| ids.contains(&(nth * 1000))), "one that is there is missing");
}
