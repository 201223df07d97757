//! The same bytes in any split give the same output, on every connection.

use proptest::prelude::*;

use crate::driver::Driver;

/// Commands, right and wrong, that clients send.
fn command() -> impl Strategy<Value = Vec<u8>> {
    let subject = prop_oneof![
        Just("a"),
        Just("a.b"),
        Just("a.*"),
        Just(">"),
        Just("a.>"),
        Just("a..b"),
        Just("in.1"),
        Just("in.*"),
        Just("$mq9.AI.X"),
        Just("b"),
    ];
    let blank = prop_oneof![8 => Just(" "), 1 => Just("\t"), 1 => Just("  ")];
    let end = prop_oneof![8 => Just("\r\n"), 1 => Just("\n")];
    let sid = 1..4u8;
    prop_oneof![
        4 => (subject.clone(), blank.clone(), prop::option::of(0..3u8), sid.clone(), end.clone())
            .prop_map(|(subject, blank, queue, sid, end)| {
                let queue = queue.map_or(String::new(), |queue| format!("q{queue}{blank}"));
                format!("SUB{blank}{subject}{blank}{queue}{sid}{end}").into_bytes()
            }),
        6 => (subject.clone(), blank.clone(), any::<bool>(), prop::collection::vec(any::<u8>(), 0..40))
            .prop_map(|(subject, blank, reply, payload)| {
                let reply = if reply { "in.1 " } else { "" };
                let line = format!("PUB{blank}{subject} {reply}{}\r\n", payload.len());
                [line.as_bytes(), &payload, b"\r\n"].concat()
            }),
        2 => (subject, prop::collection::vec(any::<u8>(), 0..20)).prop_map(|(subject, payload)| {
            let line = format!("hpub {subject} 12 {}\r\nNATS/1.0\r\n\r\n", payload.len() + 12);
            [line.as_bytes(), &payload, b"\r\n"].concat()
        }),
        2 => (sid, 0..4u8).prop_map(|(sid, max)| format!("UNSUB {sid} {max}\r\n").into_bytes()),
        2 => Just(b"PING\r\n".to_vec()),
        1 => Just(b"CONNECT {\"verbose\":true,\"pedantic\":true}\r\n".to_vec()),
        1 => Just(b"CONNECT {\"echo\":false}\r\n".to_vec()),
        1 => prop_oneof![
            Just(&b"PUB a 2\r\nabc\r\n"[..]), Just(&b"FOO\r\n"[..]), Just(&b"PUB a x\r\n"[..]),
            Just(&b"+OK\r\n"[..]), Just(&b"-ERR 'x'\r\n"[..]), Just(&b"SUB \r\n"[..]),
            Just(&b"INFO {}\r\n"[..]), Just(&b"\r\n"[..]), Just(&b"PUB a 2000000\r\n"[..]),
        ].prop_map(<[u8]>::to_vec),
    ]
}

/// What every connection hears, and which ones end, if the input comes in these pieces.
fn outcome(script: &[u8], cuts: &[usize]) -> (Vec<String>, bool) {
    let mut server = Driver::new();
    let (watcher, client) = (server.client(), server.client());
    server.say(watcher, "SUB a.> 1\r\nSUB b w 2\r\n");
    let mut heard = String::new();
    let mut at = 0;
    for &cut in cuts.iter().chain([&script.len()]) {
        heard += &server.say(client, &script[at..cut]);
        at = cut;
    }
    (vec![heard, server.hear(watcher)], server.closed.contains_key(&client))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn any_split_gives_the_same_output(
        commands in prop::collection::vec(command(), 1..25),
        mut cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..30),
    ) {
        let script = commands.concat();
        let mut cuts: Vec<usize> =
            cuts.drain(..).map(|cut| cut.index(script.len() + 1)).collect();
        cuts.sort_unstable();
        let whole = outcome(&script, &[]);
        prop_assert_eq!(&outcome(&script, &cuts), &whole);
        let bytes: Vec<usize> = (1..script.len()).collect();
        prop_assert_eq!(&outcome(&script, &bytes), &whole);
    }
}
