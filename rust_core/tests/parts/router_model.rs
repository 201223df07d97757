//! The router against a list that is searched from front to back.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use mq9_core::nats;
use mq9_core::router::{Hit, Matches, Route, Router, Sid, SubId};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    Subscribe { subject: String, queue: u8 },
    Unsubscribe(prop::sample::Index),
    Publish(String),
}

fn subject(last: &'static str) -> impl Strategy<Value = String> {
    let token = prop_oneof![3 => Just("a"), 3 => Just("b"), 1 => Just("cc"), 2 => Just("*")];
    (prop::collection::vec(token, 1..5), any::<bool>()).prop_map(move |(mut tokens, open)| {
        if open && !last.is_empty() {
            tokens.push(last);
        }
        tokens.join(".")
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (subject(">"), 0..4u8).prop_map(|(subject, queue)| Step::Subscribe { subject, queue }),
        2 => any::<prop::sample::Index>().prop_map(Step::Unsubscribe),
        4 => subject("").prop_map(Step::Publish),
    ]
}

fn queue_name(queue: u8) -> String {
    if queue == 0 { String::new() } else { format!("q{queue}") }
}

/// By queue (none is empty), the owners of the subscriptions a subject meets.
fn found(router: &Router, matches: &Matches) -> BTreeMap<String, Vec<u32>> {
    let mut found: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    let mut add = |queue: &str, members: &[SubId]| {
        let owners = members.iter().map(|&id| router.get(id).unwrap().owner);
        found.entry(queue.to_owned()).or_default().extend(owners);
    };
    for &interest in matches {
        let interest = router.interest_at(interest);
        add("", interest.plain());
        for queue in interest.queues() {
            add(std::str::from_utf8(queue.name()).unwrap(), queue.members());
        }
    }
    found.retain(|_, owners| !owners.is_empty());
    found.values_mut().for_each(|owners| owners.sort_unstable());
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn the_router_finds_what_a_search_finds(steps in prop::collection::vec(step(), 1..120)) {
        let mut router = Router::new(7);
        let mut list: Vec<(u32, String, u8, SubId)> = Vec::new();
        let mut owner = 0;
        let mut route = Route::default();
        for step in steps {
            match step {
                Step::Subscribe { subject, queue } => {
                    owner += 1;
                    let name = queue_name(queue);
                    let sid = Sid::from_slice(b"1");
                    let id = router.subscribe(owner, subject.as_bytes(), name.as_bytes(), sid);
                    prop_assert_eq!(
                        router.subject_of(id).unwrap(), (subject.as_bytes(), name.as_bytes())
                    );
                    list.push((owner, subject, queue, id));
                }
                Step::Unsubscribe(which) if !list.is_empty() => {
                    let (owner, _, _, id) = list.swap_remove(which.index(list.len()));
                    prop_assert_eq!(router.unsubscribe(id).unwrap().owner, owner);
                }
                Step::Unsubscribe(_) => {}
                Step::Publish(subject) => {
                    let mut expected: BTreeMap<String, Vec<u32>> = BTreeMap::new();
                    for (owner, pattern, queue, _) in &list {
                        if nats::matches(pattern.as_bytes(), subject.as_bytes()) {
                            expected.entry(queue_name(*queue)).or_default().push(*owner);
                        }
                    }
                    expected.values_mut().for_each(|owners| owners.sort_unstable());
                    let mut matches = Matches::new();
                    router.matches(subject.as_bytes(), &mut matches);
                    prop_assert_eq!(&found(&router, &matches), &expected);
                    router.find_route(&mut route, subject.as_bytes());
                    prop_assert_eq!(found(&router, route.matches()), expected);
                }
            }
            prop_assert_eq!(router.len(), list.len());
        }
    }

    #[test]
    fn covering_and_overlapping_agree_with_matching(
        one in subject(">"), other in subject(">"),
        literals in prop::collection::vec(subject(""), 20),
    ) {
        let (one, other) = (one.as_bytes(), other.as_bytes());
        for literal in literals.iter().filter(|literal| nats::is_literal(literal.as_bytes())) {
            let both = (nats::matches(one, literal.as_bytes()), nats::matches(other, literal.as_bytes()));
            prop_assert!(!nats::covers(one, other) || !both.1 || both.0);
            prop_assert!(nats::overlaps(one, other) || both != (true, true));
        }
        prop_assert!(nats::covers(one, one) && nats::overlaps(one, one));
        prop_assert_eq!(nats::overlaps(one, other), nats::overlaps(other, one));
        prop_assert!(!nats::covers(one, other) || nats::overlaps(one, other));
    }
}

#[test]
fn subjects_are_valid_or_not() {
    for (subject, valid, literal) in [
        ("a", true, true),
        ("a.b.c", true, true),
        ("*", true, false),
        (">", true, false),
        ("a.*.>", true, false),
        ("a*b.c>", true, true),
        ("", false, false),
        (".", false, false),
        ("a.", false, false),
        (".a", false, false),
        ("a..b", false, false),
        (">.a", false, false),
        ("a.>.b", false, false),
    ] {
        assert_eq!(nats::is_valid(subject.as_bytes()), valid, "{subject}");
        assert_eq!(nats::is_literal(subject.as_bytes()), literal, "{subject}");
    }
}

#[test]
fn a_route_is_good_for_every_last_token_that_nobody_names() {
    let mut router = Router::new(7);
    let mut subscribe = |subject: &str| {
        router.subscribe(1, subject.as_bytes(), b"", Sid::from_slice(b"1"));
    };
    subscribe("in.x.*");
    subscribe("in.y.*");
    subscribe("in.y.*.z");
    subscribe("in.y.named");
    subscribe("in.*.also");
    let hits = |route: &mut Route, subjects: [&str; 4]| {
        subjects.map(|subject| router.find_route(route, subject.as_bytes()))
    };
    let mut route = Route::default();
    // `in.*.also` names a last token.
    let expected = [Hit::None, Hit::None, Hit::None, Hit::Same];
    assert_eq!(hits(&mut route, ["in.x.1", "in.x.2", "in.x.also", "in.x.also"]), expected);
    let mut router = Router::new(7);
    router.subscribe(1, b"in.x.*", b"", Sid::from_slice(b"1"));
    router.subscribe(1, b"in.x.exact", b"", Sid::from_slice(b"1"));
    let mut find = |subject: &str| router.find_route(&mut route, subject.as_bytes());
    assert_eq!(find("in.x.1"), Hit::None);
    assert_eq!(find("in.x.2"), Hit::Alike);
    assert_eq!(find("in.x.2"), Hit::Same);
    assert_eq!(find("in.x.1"), Hit::Alike);
    assert_eq!(find("in.x.exact"), Hit::None);
    assert_eq!(find("in.x.3"), Hit::None);
    assert_eq!(find("in.x.3.4"), Hit::None);
    assert_eq!(find("in.x."), Hit::None);
}
