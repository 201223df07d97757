//! Each rule left out once: if the simulation does not find what breaks then, it proves nothing.

use mq9_cluster::Alarm;

use super::ledger::Broken;
use super::world::{Rules, World};

/// Some seed must break with `rules`, in one of the ways that `expected` names.
fn breaks(rules: Rules, limit: u64, expected: fn(&Broken) -> bool) {
    let mut broken = (0..limit).filter_map(|seed| World::new(seed, rules.clone()).run().err());
    assert!(broken.any(|broken| expected(&broken)), "nothing broke that way in {limit} seeds");
}

#[test]
fn without_an_expected_sequence_it_breaks() {
    let rules = Rules { stream_checks_sequence: false, ..Rules::default() };
    breaks(rules, 50, |broken| {
        matches!(broken, Broken::Alarm { alarm: Alarm::Differs { .. }, .. })
    });
}

#[test]
fn four_appends_under_way_without_the_check_of_terms_break() {
    let rules = Rules { window: 4, checks_terms: false, ..Rules::default() };
    breaks(rules, 300, |broken| {
        matches!(broken, Broken::Alarm { alarm: Alarm::Differs { .. }, .. })
    });
}

#[test]
fn four_appends_under_way_stop_the_partition_even_where_terms_are_checked() {
    // A deposed leader's second append names a sequence that a claim has taken, and is accepted behind it.
    let rules = Rules { window: 4, ..Rules::default() };
    breaks(rules, 300, |broken| {
        matches!(broken, Broken::Alarm { alarm: Alarm::Differs { .. }, .. })
    });
}

#[test]
fn replies_before_the_acknowledgement_of_the_stream_break() {
    let rules = Rules { replies_early: true, ..Rules::default() };
    breaks(rules, 50, |broken| matches!(broken, Broken::Lost { .. } | Broken::StaleRead { .. }));
}

#[test]
fn reads_without_a_lease_break() {
    let rules = Rules { reads_need_lease: false, ..Rules::default() };
    breaks(rules, 100, |broken| matches!(broken, Broken::StaleRead { .. }));
}

#[test]
fn logs_that_are_not_cut_break() {
    let rules = Rules { cuts: false, ..Rules::default() };
    breaks(rules, 50, |broken| matches!(broken, Broken::Differs { .. } | Broken::Doubled { .. }));
}

#[test]
fn a_stream_that_is_shortened_without_asking_all_breaks() {
    let rules = Rules { purges_blindly: true, ..Rules::default() };
    breaks(rules, 100, |broken| {
        matches!(broken, Broken::Alarm { alarm: Alarm::Missed { .. }, .. })
    });
}
