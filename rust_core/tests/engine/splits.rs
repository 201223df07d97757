//! Answers do not depend on where input is split, nor on when the engine settles.

use std::collections::BTreeMap;

use mq9_core::mailbox::Policy;
use proptest::prelude::*;

use crate::driver::Driver;
use crate::script::{ADDRESSES, Ask, Step, policy};
use crate::wire::request;

/// What each reply subject heard, in order.
type Heard = BTreeMap<String, Vec<String>>;

/// Requests in their order, each of one of two clients: nothing waits, but for polls of a mailbox of their own.
fn requests(seeds: &[u64]) -> Vec<(usize, Vec<u8>)> {
    let mut requests = Vec::new();
    for (nth, seed) in seeds.iter().enumerate() {
        let Step::Say { client, mut ask, quiet } = Step::draw(*seed) else { continue };
        let client = client % 2;
        let reply = if quiet { String::new() } else { format!("in{client}.{nth}") };
        let mut msg_ids = Vec::new();
        match &mut ask {
            Ask::Fetch { fetch, .. } => fetch.wait_ms = 0,
            Ask::Ack { newest, .. } => msg_ids = newest.iter().map(|&id| id as u64).collect(),
            Ask::Send { .. } => {}
        }
        requests.push((client, request(&ask, &format!("p{nth}"), &reply, &msg_ids)));
        match seed % 8 {
            0 => requests.push((client, poll(client, nth))),
            1 => requests.push((
                client,
                format!("PUB $mq9.AI.MSG.FETCH.a in{client}.b{nth} 1\r\n{{\r\n").into_bytes(),
            )),
            _ => {}
        }
    }
    requests.push((0, b"PUB $mq9.AI.MSG.SEND.polled 4\r\nnews\r\n".to_vec()));
    requests
}

fn poll(client: usize, nth: usize) -> Vec<u8> {
    let body = r#"{"config":{"max_wait_ms":60000}}"#;
    let line = format!("PUB $mq9.AI.MSG.FETCH.polled in{client}.poll{nth} {}", body.len());
    format!("{line}\r\n{body}\r\n").into_bytes()
}

fn world() -> (Driver, [u32; 2]) {
    let mut driver = Driver::new();
    ADDRESSES.iter().for_each(|address| driver.create(address, policy(address)));
    driver.create("polled", Policy::default());
    let clients = [driver.client(), driver.client()];
    (driver, clients)
}

fn listen(driver: &mut Driver, clients: [u32; 2], heard: &mut [Heard; 2]) {
    for (client, heard) in clients.into_iter().zip(heard) {
        let text = driver.wire(client);
        let mut rest = text.as_str();
        while let Some((line, more)) = rest.split_once("\r\n") {
            let words: Vec<&str> = line.split(' ').collect();
            let (subject, size) = match words[0] {
                "-ERR" => ("-ERR", 0),
                _ => (words[1], words[words.len() - 1].parse::<usize>().unwrap() + 2),
            };
            let text = format!("{line}\n{}", &more[..size]);
            heard.entry(subject.to_owned()).or_default().push(text);
            rest = &more[size..];
        }
    }
}

fn ask_one_by_one(requests: &[(usize, Vec<u8>)]) -> [Heard; 2] {
    let ((mut driver, clients), mut heard) = (world(), Default::default());
    for (client, bytes) in requests {
        driver.feed(clients[*client], bytes);
    }
    driver.settle();
    listen(&mut driver, clients, &mut heard);
    heard
}

/// Feeds pieces that end at any of `cuts`; after some of them the engine settles, or everything becomes durable.
fn ask_in_pieces(requests: &[(usize, Vec<u8>)], cuts: &[(u8, u8)]) -> [Heard; 2] {
    let ((mut driver, clients), mut heard) = (world(), Default::default());
    let mut cuts = cuts.iter().cycle();
    for of_one in requests.chunk_by(|a, b| a.0 == b.0) {
        let client = clients[of_one[0].0];
        let input: Vec<u8> = of_one.iter().flat_map(|(_, bytes)| bytes.iter().copied()).collect();
        let mut rest = input.as_slice();
        while !rest.is_empty() {
            let (len, then) = cuts.next().unwrap();
            let (piece, more) = rest.split_at(usize::from(*len).clamp(1, rest.len()));
            driver.feed(client, piece);
            rest = more;
            match then % 8 {
                0 => driver.release(),
                1 => driver.store().sync().unwrap(),
                2 => listen(&mut driver, clients, &mut heard),
                _ => driver.engine.check_invariants(),
            }
        }
    }
    driver.settle();
    listen(&mut driver, clients, &mut heard);
    heard
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() })]
    #[test]
    fn any_split_with_settling_anywhere_gives_the_same_answers(
        seeds in prop::collection::vec(any::<u64>(), 60),
        cuts in prop::collection::vec((any::<u8>(), any::<u8>()), 1..40),
    ) {
        let requests = requests(&seeds);
        let whole = ask_one_by_one(&requests);
        prop_assert!(whole.iter().map(BTreeMap::len).sum::<usize>() > 10, "little was asked");
        prop_assert_eq!(&ask_in_pieces(&requests, &cuts), &whole);
        // All of it at once, and byte for byte.
        prop_assert_eq!(&ask_in_pieces(&requests, &[(255, 7)]), &whole);
        prop_assert_eq!(&ask_in_pieces(&requests, &[(1, 7)]), &whole);
    }
}
