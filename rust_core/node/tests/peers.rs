//! Conclusions from what other nodes say of themselves.

use mq9_node::{Peer, Peers, Role};

fn peer(node: u32, sequence: u64, durable: u64) -> Peer {
    Peer {
        node,
        role: Role::Following,
        term: 1,
        sequence,
        durable,
        digest: String::new(),
        leader: 1,
        incarnation: 0,
        age_ms: 0,
        rival: 0,
        is_full: false,
    }
}

#[test]
fn the_stream_is_kept_until_all_members_have_it_whoever_else_is_there() {
    let (mut peers, members) = (Peers::default(), [1, 3, 4]);
    peers.hear(Peer { role: Role::Leading, ..peer(1, 90, 80) }, 0);
    peers.hear(peer(3, 90, 70), 0);
    // Node 2 was taken out, and runs still.
    peers.hear(peer(2, 90, 90), 0);
    assert_eq!(peers.durable_at_all(&members, 10), None, "node 4 has said nothing");
    peers.hear(peer(4, 90, 60), 10);
    assert_eq!(peers.durable_at_all(&members, 10), Some(60));
    peers.hear(peer(2, 5, 5), 10);
    assert_eq!(peers.durable_at_all(&members, 10), Some(60), "nobody waits for node 2");
    peers.hear(Peer { role: Role::Starting, ..peer(4, 90, 60) }, 20);
    assert_eq!(peers.durable_at_all(&members, 20), None, "it may turn out to have less");
    peers.hear(peer(4, 90, 60), 2_900);
    assert_eq!(peers.durable_at_all(&members, 3_000), None, "nodes 1 and 3 may be away");
}

#[test]
fn the_next_leader_is_a_member_with_room_and_then_the_most() {
    let (mut peers, members) = (Peers::default(), [1, 2, 3, 4, 5]);
    peers.hear(peer(6, 99, 99), 0);
    peers.hear(Peer { role: Role::Leading, ..peer(1, 99, 99) }, 0);
    assert!(peers.best_placed(&members, 1, 0).is_none());
    peers.hear(Peer { is_full: true, ..peer(2, 99, 99) }, 0);
    assert_eq!(
        peers.best_placed(&members, 1, 0).map(|peer| (peer.node, peer.is_full)),
        Some((2, true))
    );
    peers.hear(peer(3, 50, 50), 0);
    peers.hear(peer(4, 60, 60), 0);
    peers.hear(Peer { role: Role::Stopped, ..peer(5, 70, 70) }, 0);
    assert_eq!(peers.best_placed(&members, 1, 0).map(|peer| peer.node), Some(4));
    assert!(peers.follows(1, 2, 0) && !peers.follows(1, 5, 0) && !peers.follows(2, 1, 0));
    assert!(!peers.follows(1, 2, 3_000), "it may be away");
}

#[test]
fn a_missing_stream_is_made_by_most_of_the_members_if_none_holds_anything() {
    let (mut peers, members) = (Peers::default(), [1, 2, 3]);
    let empty = |node| Peer { role: Role::Starting, ..peer(node, 0, 0) };
    assert_eq!(peers.keep_from_beginning(&[1], 1, 0, 0), None, "it is alone");
    assert!(peers.keep_from_beginning(&[1], 1, 5, 0).unwrap().contains("this node holds"));
    let waits = |peers: &Peers, now| peers.keep_from_beginning(&members, 1, 0, now);
    assert!(waits(&peers, 0).unwrap().contains("once 2 of the 3 nodes are here"));
    peers.hear(empty(1), 0);
    peers.hear(empty(4), 0);
    assert!(waits(&peers, 0).is_some(), "neither itself nor a stranger is another member");
    peers.hear(empty(2), 0);
    assert_eq!(waits(&peers, 10), None);
    assert!(waits(&peers, 3_000).is_some(), "node 2 may be away");
    peers.hear(empty(2), 3_000);
    peers.hear(Peer { role: Role::Starting, ..peer(3, 7, 7) }, 3_000);
    assert!(waits(&peers, 3_000).unwrap().contains("node 3 holds what was in it"));
    peers.hear(empty(2), 60_000);
    assert!(
        waits(&peers, 60_000).unwrap().contains("node 3"),
        "what it holds is not gone because it is away"
    );
    peers.hear(empty(3), 60_000);
    assert_eq!(waits(&peers, 60_000), None, "it has joined anew");
}
