//! Slow readers at the running thread: whatever their socket takes at once, all of it arrives, in order.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use mq9_core::engine::Engine;
use mq9_core::front::{Limits, Terms};
use mq9_core::protocol::WireOptions;
use mq9_runtime::tls::TlsConfig;
use mq9_runtime::{Greeting, Notice, Runtime, TlsTerms, clock};

use crate::world::{Client, Numbers, World};

/// So much of a message fits into no socket at once, and into what is encrypted at once.
const LARGE: usize = 250_000;

struct Server {
    runtime: Runtime,
    tls: TlsTerms,
    world: World,
    connections: u64,
}

impl Server {
    fn new() -> Server {
        Server::with(Limits::default())
    }

    fn with(limits: Limits) -> Server {
        let world = World::new();
        let config = TlsConfig::new(&world.settings()).unwrap();
        let tls = TlsTerms { config, first: None, plain_allowed: false, timeout_ms: 60_000 };
        let engine = Engine::new(limits, WireOptions::default(), None, 1, clock::moment());
        Server { runtime: Runtime::start(engine, None).unwrap(), tls, world, connections: 0 }
    }

    fn client(&mut self, secure: bool) -> Peer {
        let (socket, accepted) = UnixStream::pair().unwrap();
        accepted.set_nonblocking(true).unwrap();
        self.connections += 1;
        let cid = self.connections;
        let greeting = Greeting {
            info: b"INFO {}\r\n".to_vec(),
            must_authenticate: false,
            auth_timeout_ms: None,
            tls: secure.then(|| self.tls.clone()),
            paused: false,
        };
        let accepted = OwnedFd::from(accepted);
        self.runtime.order(move |pump, now| pump.adopt(cid, accepted, greeting, now));
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let tls = secure.then(|| self.world.client());
        let mut peer = Peer { cid, socket, tls, heard: Vec::new() };
        peer.hear_until(b"INFO {}\r\n");
        peer.say(b"CONNECT {}\r\n");
        let deadline = Instant::now() + Duration::from_secs(20);
        let asks = |notice: &Notice| matches!(notice, Notice::Connect { .. });
        while !self.runtime.notices().take(100).iter().any(asks) {
            assert!(Instant::now() < deadline, "nobody asks to be let in");
            std::thread::yield_now();
        }
        let terms = Terms { verbose: false, ..Terms::default() };
        self.runtime.order(move |pump, now| pump.accept(cid, terms, now));
        peer.say(b"SUB news 1\r\nPING\r\n");
        peer.hear_until(b"PONG\r\n");
        peer
    }

    /// What a client has yet to read, of which the thread knows.
    fn pending(&self, peer: &Peer) -> usize {
        let cid = peer.cid;
        let pending = self.runtime.ask(move |pump, _| {
            let id = pump.find(cid).unwrap();
            pump.engine().stats(id).unwrap().pending_bytes
        });
        pending.unwrap()
    }
}

struct Peer {
    cid: u64,
    socket: UnixStream,
    tls: Option<Client>,
    /// What it was told and has not looked at.
    heard: Vec<u8>,
}

impl Peer {
    fn say(&mut self, bytes: &[u8]) {
        match &mut self.tls {
            None => self.socket.write_all(bytes).unwrap(),
            Some(tls) => self.socket.write_all(&tls.says(bytes)).unwrap(),
        }
    }

    /// Reads once, so many bytes of the socket at most. False if there are none.
    fn read(&mut self, most: usize) -> bool {
        if let Some(tls) = &mut self.tls {
            self.socket.write_all(&tls.output()).unwrap();
        }
        let mut bytes = vec![0; most];
        let read = match self.socket.read(&mut bytes) {
            Ok(0) => panic!("the server has closed the connection"),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(error) => panic!("{error}"),
        };
        match &mut self.tls {
            None => self.heard.extend_from_slice(&bytes[..read]),
            Some(tls) => self.heard.extend(tls.hears(&bytes[..read]).unwrap()),
        }
        if let Some(tls) = &mut self.tls {
            self.socket.write_all(&tls.output()).unwrap();
        }
        true
    }

    /// Reads until the last of it is there, and takes everything up to there.
    fn hear_until(&mut self, end: &[u8]) -> Vec<u8> {
        while !self.heard.ends_with(end) {
            assert!(self.read(1 << 16), "it goes mute behind {} bytes", self.heard.len());
        }
        std::mem::take(&mut self.heard)
    }
}

fn news(number: usize, bytes: usize) -> Vec<u8> {
    let mut payload = format!("{number:08}").into_bytes();
    payload.resize(bytes.max(8), b'x');
    let head = format!("news 1 {}\r\n", payload.len()).into_bytes();
    [b"MSG ".as_slice(), &head, &payload, b"\r\n"].concat()
}

fn publish(sender: &mut Peer, number: usize, bytes: usize) {
    let told = news(number, bytes);
    let payload = &told[told.iter().position(|&byte| byte == b'\n').unwrap() + 1..];
    let head = format!("PUB news {}\r\n", payload.len() - 2);
    sender.say(&[head.as_bytes(), payload].concat());
}

/// A publisher that hears nothing of what it publishes.
fn publisher(server: &mut Server) -> Peer {
    let mut sender = server.client(false);
    sender.say(b"UNSUB 1\r\nPING\r\n");
    sender.hear_until(b"PONG\r\n");
    sender
}

fn barrier(sender: &mut Peer) {
    sender.say(b"PING\r\n");
    sender.hear_until(b"PONG\r\n");
}

#[test]
fn a_slow_reader_that_goes_on_talking_is_told_everything() {
    for secure in [true, false] {
        let mut server = Server::new();
        let (mut slow, mut sender) = (server.client(secure), publisher(&mut server));
        let mut expected = Vec::new();
        for number in 0..6 {
            publish(&mut sender, number, LARGE);
            expected.extend(news(number, LARGE));
        }
        barrier(&mut sender);
        assert!(server.pending(&slow) > 2 * LARGE, "it takes everything at once");
        // It reads a little, says something, reads a little: the server reads from it while its socket has room for
        // less than what waits.
        let mut pongs = 0;
        while slow.heard.len() < 2 * LARGE {
            assert!(slow.read(16 << 10), "it goes mute behind {} bytes", slow.heard.len());
            slow.say(b"PING\r\n");
            pongs += 1;
            barrier(&mut sender);
        }
        expected.extend(b"PONG\r\n".repeat(pongs));
        slow.say(b"UNSUB 1\r\nSUB end 2\r\nPUB end 3\r\nend\r\n");
        let told = slow.hear_until(b"MSG end 2 3\r\nend\r\n");
        assert_eq!(told.len(), expected.len() + 18);
        assert!(told.starts_with(&expected), "in another order");
        assert_eq!(server.pending(&slow), 0);
    }
}

#[test]
fn any_order_of_reading_talking_and_publishing_loses_nothing() {
    for seed in 0..12 {
        let secure = seed % 3 != 0;
        let mut numbers = Numbers::new(seed);
        let mut server = Server::new();
        let (mut slow, mut sender) = (server.client(secure), publisher(&mut server));
        let (mut expected, mut told, mut most) = (Vec::new(), Vec::new(), 0);
        for number in 0..60 {
            match numbers.below(4) {
                0 => {
                    let bytes = 8 + numbers.below(LARGE);
                    publish(&mut sender, number, bytes);
                    expected.extend(news(number, bytes));
                }
                1 => slow.say(b"PUB nobody 0\r\n\r\n"),
                2 => barrier(&mut sender),
                _ => {
                    slow.socket.set_nonblocking(true).unwrap();
                    slow.read(1 + numbers.below(LARGE / 2));
                    slow.socket.set_nonblocking(false).unwrap();
                }
            }
            if numbers.below(8) == 0 {
                most = most.max(server.pending(&slow));
                server.runtime.ask(|pump, _| pump.check_invariants()).unwrap();
            }
        }
        publish(&mut sender, 999, 8);
        expected.extend(news(999, 8));
        told.extend(slow.hear_until(&news(999, 8)));
        assert!(told == expected, "seed {seed}: {} bytes of {}", told.len(), expected.len());
        assert!(most > 0, "seed {seed}: it was never slow");
        server.runtime.ask(|pump, _| pump.check_invariants()).unwrap();
    }
}

#[test]
fn a_client_that_talks_and_does_not_read_is_cut_off_in_time() {
    for secure in [true, false] {
        let limits = Limits { write_deadline_ms: 300, ..Limits::default() };
        let mut server = Server::with(limits);
        let (mut deaf, mut sender) = (server.client(secure), publisher(&mut server));
        for number in 0..4 {
            publish(&mut sender, number, LARGE);
        }
        barrier(&mut sender);
        let ping = match &mut deaf.tls {
            None => b"PING\r\n".to_vec(),
            Some(tls) => tls.says(b"PING\r\n"),
        };
        deaf.socket.write_all(&ping).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            assert!(Instant::now() < deadline, "nobody cuts it off");
            let closed = server.runtime.notices().take(100).into_iter().find_map(|notice| {
                let Notice::Closed { cid, reason, .. } = notice else { return None };
                (cid == deaf.cid).then_some(reason)
            });
            if let Some(reason) = closed {
                assert_eq!(reason, "Slow Consumer (Write Deadline)");
                break;
            }
            barrier(&mut sender);
        }
    }
}
