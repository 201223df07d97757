//! Bytes from a nats-server to a node: none make the reader panic, and it does not matter where they were
//! split. What it understands as a message can be said again. Input: a length of pieces, then the bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mq9_node::{Malformed, Reader, Said, Stream};

fuzz_target!(|data: &[u8]| {
    let Some((&piece, input)) = data.split_first() else { return };
    let whole = run(&[input]);
    let pieces: Vec<&[u8]> = input.chunks(usize::from(piece).max(1)).collect();
    assert_eq!(run(&pieces), whole);
    let stream = Stream::new("c", 1, 3);
    let mut out = Vec::new();
    for said in whole.0 {
        if let Said::Message(message) = said {
            let (_, _) = (message.status(), message.header("Nats-Msg-Id"));
            let _ = stream.hear(message, &mut out);
        }
    }
    // What has to be answered at once is no more than what was asked.
    assert!(out.len() <= 64 + 4 * input.len(), "{} bytes of answers", out.len());
});

fn run(parts: &[&[u8]]) -> (Vec<Said>, Option<Malformed>) {
    let (mut reader, mut said) = (Reader::default(), Vec::new());
    for part in parts {
        reader.push(part);
        loop {
            match reader.take() {
                Ok(Some(one)) => said.push(one),
                Ok(None) => break,
                Err(error) => return (said, Some(error)),
            }
        }
    }
    (said, None)
}
