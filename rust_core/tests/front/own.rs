//! The broker's own connections are not counted as clients.

use mq9_core::front::Totals;

use crate::driver::Driver;

const OWN: &str = "CONNECT {\"verbose\":false,\"own\":true}\r\n";

#[test]
fn what_the_brokers_own_connections_do_is_in_no_counter() {
    let mut server = Driver::new();
    let none = server.front.totals();
    let (own, other) = (server.open(true), server.open(true));
    server.say(own, OWN);
    server.say(other, OWN);
    server.say(own, "SUB a 1\r\nSUB b 2\r\nPUB a 3\r\nabc\r\n");
    server.say(other, "PUB a 1\r\nx\r\n");
    let counted =
        |server: &Driver| Totals { lookups: 0, inserts: 0, removes: 0, ..server.front.totals() };
    assert_eq!(counted(&server), none);
    assert_eq!(server.front.subscriptions(), 0);

    let client = server.client();
    server.say(client, "SUB a 1\r\nPUB a 5\r\nhello\r\n");
    let expected =
        Totals { connections: 1, in_msgs: 1, in_bytes: 5, out_msgs: 1, out_bytes: 5, ..none };
    assert_eq!(counted(&server), expected);
    assert_eq!(server.front.subscriptions(), 1);

    // Once they have gone, too.
    server.front.remove(own);
    assert_eq!(counted(&server), expected);
    server.front.remove(client);
    server.front.remove(other);
    assert_eq!(counted(&server), expected);
    assert_eq!(server.front.subscriptions(), 0);
}

#[test]
fn whoever_says_connect_again_as_somebody_else_is_a_client() {
    let mut server = Driver::new();
    let one = server.open(true);
    server.say(one, OWN);
    server.say(one, "PUB a 1\r\nx\r\n");
    assert_eq!(server.front.totals().in_msgs, 0);
    server.say(one, "CONNECT {\"verbose\":false}\r\n");
    assert_eq!((server.front.totals().connections, server.front.totals().in_msgs), (1, 1));
    server.front.remove(one);
    assert_eq!((server.front.totals().connections, server.front.totals().in_msgs), (1, 1));
}
