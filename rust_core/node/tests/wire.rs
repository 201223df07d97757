//! Input from a server is read whole or not at all, however it is cut into pieces.

use mq9_node::{Malformed, Message, Reader, Said, publish};

fn read(pieces: &[&[u8]]) -> Result<Vec<Said>, Malformed> {
    let (mut reader, mut said) = (Reader::default(), Vec::new());
    for piece in pieces {
        reader.push(piece);
        while let Some(one) = reader.take()? {
            said.push(one);
        }
    }
    Ok(said)
}

fn message(subject: &str, reply: &str, headers: &str, payload: &[u8]) -> Said {
    let (subject, reply, headers) = (subject.to_owned(), reply.to_owned(), headers.to_owned());
    Said::Message(Message { subject, sid: 7, reply, headers, payload: payload.to_vec() })
}

const WHOLE: &[u8] =
    b"INFO {\"a\":1}\r\nPING\r\n+OK\r\nMSG a.b 7 5\r\nhello\r\nMSG a 7 r.1 0\r\n\r\n\
    HMSG h 7 r.2 16 19\r\nNATS/1.0 503\r\n\r\nxyz\r\n-ERR 'no'\r\nPONG\r\n";

#[test]
fn what_is_said_is_the_same_wherever_it_is_cut() {
    let expected = [
        Said::Info(b"{\"a\":1}".to_vec()),
        Said::Ping,
        message("a.b", "", "", b"hello"),
        message("a", "r.1", "", b""),
        message("h", "r.2", "NATS/1.0 503\r\n\r\n", b"xyz"),
        Said::Refused("no".to_owned()),
        Said::Pong,
    ];
    assert_eq!(read(&[WHOLE]).unwrap(), expected);
    for at in 0..WHOLE.len() {
        let (a, b) = WHOLE.split_at(at);
        assert_eq!(read(&[a, b]).unwrap(), expected, "cut at {at}");
    }
}

#[test]
fn headers_and_status_are_found() {
    let headers = "NATS/1.0 100 FlowControl\r\nNats-Consumer-Stalled: $JS.FC.x\r\n\r\n";
    let message = Message { headers: headers.to_owned(), ..Message::default() };
    assert_eq!(message.status(), Some(100));
    assert_eq!(message.header("Nats-Consumer-Stalled"), Some("$JS.FC.x"));
    assert_eq!(message.header("Nats"), None);
}

#[test]
fn what_no_server_says_is_refused() {
    let endless = vec![b'x'; 1 << 17];
    let wrong: [&[u8]; 8] = [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"MSG\r\n",
        b"MSG a 1 x\r\n",
        b"MSG a 1 99999999999\r\n",
        b"MSG a b c d 4\r\nabcd\r\n",
        b"MSG a b 4\r\nabcd\r\n",
        b"HMSG a 1 9 4\r\nabcd\r\n",
        &endless,
    ];
    for bytes in wrong {
        let start = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]);
        assert!(read(&[bytes]).is_err(), "{start:?}");
    }
}

#[test]
fn what_is_published_says_its_sizes() {
    let mut out = Vec::new();
    publish(&mut out, "a", "", &[], b"xy");
    publish(&mut out, "a", "r", &[("K", "v")], b"xy");
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text, "PUB a 2\r\nxy\r\nHPUB a r 18 20\r\nNATS/1.0\r\nK: v\r\n\r\nxy\r\n");
}
