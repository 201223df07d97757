//! The running thread: real sockets, a store on disk, and nobody who listens to its notices.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use mq9_core::engine::Engine;
use mq9_core::front::{Limits, Terms};
use mq9_core::log::SyncMode;
use mq9_core::protocol::WireOptions;
use mq9_core::store::{NewMailbox, Options, Store};
use mq9_runtime::{Failure, Greeting, Notice, OpenStore, Runtime, clock};

struct Server {
    runtime: Runtime,
    store: OpenStore,
    listener: TcpListener,
    connections: u64,
    _folder: tempfile::TempDir,
}

impl Server {
    fn new(limits: Limits) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { sync: SyncMode::Interval { ms: 100 }, ..Options::default() };
        let every = Duration::from_millis(200);
        let store = OpenStore::open(folder.path(), options, every, clock::now()).unwrap();
        let new = NewMailbox { address: "m", ..NewMailbox::default() };
        let create = move |open: &mut Store| open.create_mailbox(&new, clock::now());
        store.write(move |open| create(open).map_err(Failure::from)).unwrap();
        let lock = Arc::clone(store.store());
        let engine = Engine::new(limits, WireOptions::default(), Some(lock), 1, clock::moment());
        let runtime = Runtime::start(engine, Some(&store)).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Server { runtime, store, listener, connections: 0, _folder: folder }
    }

    /// A client that was met and is let in without being asked who it is.
    fn client(&mut self) -> Client {
        let (cid, mut client) = self.meet(false);
        client.say(b"CONNECT {}\r\nSUB in.* 1\r\n");
        self.let_in(cid);
        client.say(b"PING\r\n");
        assert_eq!(client.line(), "PONG");
        client
    }

    fn let_in(&self, cid: u64) {
        until(|| self.hear().iter().any(|notice| matches!(notice, Notice::Connect { .. })));
        let terms = Terms { verbose: false, pedantic: false, ..Terms::default() };
        self.runtime.order(move |pump, now| pump.accept(cid, terms, now));
    }

    /// A client that was told whom it speaks to; one that is `paused` is not read from.
    fn meet(&mut self, paused: bool) -> (u64, Client) {
        let (cid, mut client) = self.adopt(paused, None);
        assert_eq!(client.line(), "INFO {}");
        (cid, client)
    }

    /// A client whose socket was taken over.
    fn adopt(&mut self, paused: bool, auth_timeout_ms: Option<u64>) -> (u64, Client) {
        let socket = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket.set_nodelay(true).unwrap();
        let accepted = self.listener.accept().unwrap().0;
        accepted.set_nonblocking(true).unwrap();
        self.connections += 1;
        let cid = self.connections;
        let greeting = Greeting {
            info: b"INFO {}\r\n".to_vec(),
            must_authenticate: auth_timeout_ms.is_some(),
            auth_timeout_ms,
            tls: None,
            paused,
        };
        let accepted = OwnedFd::from(accepted);
        self.runtime.order(move |pump, now| pump.adopt(cid, accepted, greeting, now));
        (cid, Client { reader: BufReader::new(socket), requests: 0 })
    }

    fn hear(&self) -> Vec<Notice> {
        self.runtime.notices().take(10_000)
    }

    fn closed(&self) -> Vec<(u64, String)> {
        let closed = |notice| match notice {
            Notice::Closed { cid, reason, .. } => Some((cid, reason)),
            _ => None,
        };
        self.hear().into_iter().filter_map(closed).collect()
    }
}

struct Client {
    reader: BufReader<TcpStream>,
    requests: u64,
}

impl Client {
    fn say(&mut self, bytes: &[u8]) {
        self.reader.get_mut().write_all(bytes).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn message(&mut self) -> String {
        let line = self.line();
        assert!(line.starts_with("MSG "), "{line}");
        let mut payload = vec![0; line.rsplit(' ').next().unwrap().parse::<usize>().unwrap() + 2];
        self.reader.read_exact(&mut payload).unwrap();
        String::from_utf8(payload).unwrap().trim_end().to_owned()
    }

    fn request(&mut self, subject: &str, payload: &[u8]) {
        self.requests += 1;
        let line = format!("PUB $mq9.AI.{subject} in.{} {}\r\n", self.requests, payload.len());
        self.say(&[line.as_bytes(), payload, b"\r\n"].concat());
    }

    fn ask(&mut self, subject: &str, payload: &[u8]) -> String {
        self.request(subject, payload);
        self.message()
    }
}

/// Waits for what happens on another thread.
fn until(mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "it does not happen");
        thread::yield_now();
    }
}

#[test]
fn messages_are_sent_fetched_and_acknowledged_though_nobody_hears_notices() {
    let mut server = Server::new(Limits::default());
    let (mut sender, mut worker) = (server.client(), server.client());
    worker.request("MSG.FETCH.m", br#"{"group_name":"g","config":{"max_wait_ms":60000}}"#);
    assert_eq!(
        sender.ask("MSG.FETCH.m", br#"{"config":{"max_wait_ms":0}}"#),
        r#"{"error":"","messages":[]}"#
    );
    assert_eq!(sender.ask("MSG.SEND.m", b"job"), r#"{"error":"","msg_id":0}"#);
    assert!(worker.message().contains(r#""payload":"job""#));
    assert_eq!(worker.ask("MSG.ACK.m", br#"{"group_name":"g","msg_id":0}"#), r#"{"error":""}"#);
    worker.say(b"PING\r\n");
    assert_eq!(worker.line(), "PONG");
}

#[test]
fn a_wait_ends_by_itself_on_a_quiet_broker() {
    let mut server = Server::new(Limits::default());
    let mut client = server.client();
    let empty = r#"{"error":"","messages":[]}"#;
    assert_eq!(client.ask("MSG.FETCH.m", br#"{"config":{"max_wait_ms":60}}"#), empty);
}

#[test]
fn a_client_that_does_not_read_is_cut_off_and_others_are_served() {
    let limits = Limits { max_pending: 1 << 20, ..Limits::default() };
    let mut server = Server::new(limits);
    let (mut deaf, mut sender) = (server.client(), server.client());
    deaf.say(b"SUB news 2\r\nPING\r\n");
    assert_eq!(deaf.line(), "PONG");
    let news = [b"PUB news 65536\r\n".as_slice(), &[b'x'; 65_536], b"\r\n"].concat();
    let mut closed = Vec::new();
    until(|| {
        sender.say(&news);
        assert!(sender.ask("MSG.SEND.m", b"x").contains(r#""error":"""#));
        closed.extend(server.closed());
        !closed.is_empty()
    });
    assert_eq!(closed, [(1, "Slow Consumer (Pending Bytes)".to_owned())]);
}

#[test]
fn requests_that_nobody_takes_are_bounded_and_read_on_when_they_are_taken() {
    let mut server = Server::new(Limits::default());
    server.runtime.order(|pump, _| pump.engine().front_mut().serve(0, b"$mq9.AI.X.>"));
    let (mut asker, mut bystander) = (server.client(), server.client());
    let request = b"PUB $mq9.AI.X.y in.1 1000\r\n".to_vec();
    let request = [request, vec![b'x'; 1000], b"\r\n".to_vec()].concat();
    for _ in 0..1000 {
        asker.say(&request);
    }
    asker.say(b"PING\r\n");
    let mut taken: Vec<(u64, usize)> = Vec::new();
    let mut take = |server: &Server| {
        let notices = server.hear();
        let requests = notices.into_iter().filter_map(|notice| match notice {
            Notice::Request(request) => Some((request.cid, request.bytes())),
            _ => None,
        });
        taken.extend(requests);
        std::mem::take(&mut taken)
    };
    let mut first = Vec::new();
    until(|| {
        first.extend(take(&server));
        first.len() >= 256
    });
    // Much later there are no more of them: the connection is not read from.
    for _ in 0..20 {
        assert!(bystander.ask("MSG.SEND.m", b"x").contains(r#""error":"""#));
        first.extend(take(&server));
    }
    assert_eq!(first.len(), 256);
    let mut all = first.len();
    let mut some = first;
    until(|| {
        let (count, bytes) = (some.len(), some.iter().map(|(_, bytes)| bytes).sum());
        server.runtime.order(move |pump, _| {
            pump.engine().front_mut().requests_taken(1, count, bytes);
        });
        some = take(&server);
        all += some.len();
        all == 1000
    });
    assert_eq!(asker.line(), "PONG");
}

#[test]
fn what_a_client_is_told_before_the_end_arrives_and_the_end_is_told() {
    let mut server = Server::new(Limits::default());
    let mut client = server.client();
    server.runtime.order(|pump, _| pump.close(1, Some(b"Go away"), "Told To".to_owned()));
    assert_eq!(client.line(), "-ERR 'Go away'");
    assert_eq!(client.line(), "");
    let mut closed = Vec::new();
    until(|| {
        closed.extend(server.closed());
        !closed.is_empty()
    });
    assert_eq!(closed, [(1, "Told To".to_owned())]);
    drop(server.client());
    until(|| {
        closed.extend(server.closed());
        closed.len() == 2
    });
    assert_eq!(closed[1], (2, "Client Closed".to_owned()));
}

#[test]
fn a_stopped_thread_answers_nothing_and_the_store_can_be_closed() {
    let mut server = Server::new(Limits::default());
    let mut client = server.client();
    assert!(client.ask("MSG.SEND.m", b"kept").contains(r#""error":"""#));
    assert_eq!(server.runtime.ask(|pump, _| pump.engine().totals().connections), Some(1));
    server.runtime.stop();
    assert_eq!(server.runtime.ask(|_, _| ()), None);
    server.runtime.order(|_, _| unreachable!("it has stopped"));
    let Server { runtime, store, .. } = server;
    drop(runtime);
    store.close().unwrap();
}

fn who_reads(store: &OpenStore) -> String {
    store.read(|_| thread::current().name().unwrap_or_default().to_owned())
}

#[test]
fn while_a_broker_serves_a_store_its_thread_reads_for_others() {
    let folder = tempfile::tempdir().unwrap();
    let every = Duration::from_millis(200);
    let store = OpenStore::open(folder.path(), Options::default(), every, clock::now()).unwrap();
    let own = thread::current().name().unwrap().to_owned();
    assert_eq!(who_reads(&store), own);
    let lock = Arc::clone(store.store());
    let now = clock::moment();
    let engine = Engine::new(Limits::default(), WireOptions::default(), Some(lock), 1, now);
    let runtime = Runtime::start(engine, Some(&store)).unwrap();
    assert_eq!(who_reads(&store), "mq9-broker");
    runtime.stop();
    assert_eq!(who_reads(&store), own);
}

#[test]
fn nobody_who_reads_while_the_broker_ends_waits_for_ever() {
    let Server { runtime, store, .. } = Server::new(Limits::default());
    let read = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5_000 {
                    store.read(|open| open.info());
                    read.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        until(|| read.load(Ordering::Relaxed) > 1_000);
        runtime.stop();
    });
    assert_eq!(read.into_inner(), 20_000);
}

#[test]
fn a_client_that_is_not_read_from_is_not_pinged() {
    let mut server = Server::new(Limits { ping_interval_ms: 200, ..Limits::default() });
    let (cid, mut early) = server.meet(true);
    early.say(b"CONNECT {}\r\nPING\r\n");
    // Time enough: one that came later and says nothing is asked.
    let (_, mut silent) = server.meet(false);
    assert_eq!(silent.line(), "PING");
    server.runtime.order(move |pump, now| pump.set_asked(cid, true, now));
    server.let_in(cid);
    assert_eq!(early.line(), "PONG");
}

#[test]
fn a_lease_begins_after_its_client_has_asked_however_long_the_round_took() {
    let mut server = Server::new(Limits::default());
    let (mut sender, mut ada, mut bob) = (server.client(), server.client(), server.client());
    assert!(sender.ask("MSG.SEND.m", b"job").contains(r#""error":"""#));
    // Both orders are in one round, and that round begins when the socket of the first worker has something to read.
    let (entered, has_entered) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    server.runtime.order(move |_, _| {
        entered.send(()).unwrap();
        released.recv().unwrap();
    });
    has_entered.recv().unwrap();
    ada.say(b"PING\r\n");
    let (begun, has_begun) = mpsc::channel();
    let (asked, has_asked) = mpsc::channel::<()>();
    server.runtime.order(move |_, _| {
        begun.send(()).unwrap();
        has_asked.recv().unwrap();
    });
    release.send(()).unwrap();
    has_begun.recv().unwrap();
    thread::sleep(Duration::from_millis(300));
    let lease =
        br#"{"group_name":"g","deliver":"earliest","config":{"max_wait_ms":0,"ack_wait_ms":400}}"#;
    let since = Instant::now();
    ada.request("MSG.FETCH.m", lease);
    asked.send(()).unwrap();
    assert_eq!(ada.line(), "PONG");
    assert!(ada.message().contains(r#""payload":"job""#));
    let wait = br#"{"group_name":"g","config":{"max_wait_ms":20000}}"#;
    assert!(bob.ask("MSG.FETCH.m", wait).contains(r#""payload":"job""#));
    assert!(since.elapsed() >= Duration::from_millis(400), "{:?}", since.elapsed());
}

#[test]
fn a_client_that_is_not_read_from_may_take_its_time_to_say_who_it_is() {
    let mut server = Server::new(Limits::default());
    let (cid, mut early) = server.adopt(true, Some(200));
    assert_eq!(early.line(), "INFO {}");
    early.say(b"CONNECT {}\r\nPING\r\n");
    // Time enough: one that came later and says nothing is sent away.
    let (_, mut silent) = server.adopt(false, Some(200));
    assert_eq!(
        (silent.line(), silent.line()),
        ("INFO {}".into(), "-ERR 'Authentication Timeout'".into())
    );
    server.runtime.order(move |pump, now| pump.set_asked(cid, true, now));
    server.let_in(cid);
    assert_eq!(early.line(), "PONG");
}

#[test]
fn the_time_to_say_who_one_is_begins_once_when_one_is_read_from() {
    const LATE: &str = "-ERR 'Authentication Timeout'";
    let mut server = Server::new(Limits::default());
    let (cid, mut paused) = server.adopt(true, Some(200));
    assert_eq!(paused.line(), "INFO {}");
    let (_, mut silent) = server.adopt(false, Some(200));
    assert_eq!((silent.line(), silent.line()), ("INFO {}".into(), LATE.into()));
    let begun = Instant::now();
    server.runtime.order(move |pump, now| pump.set_asked(cid, true, now));
    assert_eq!(paused.line(), LATE);
    assert!(begun.elapsed() > Duration::from_millis(150));
    // Who was let in has said who it is, however often it is not read from for a while.
    let (cid, mut known) = server.adopt(false, Some(200));
    assert_eq!(known.line(), "INFO {}");
    known.say(b"CONNECT {}\r\n");
    server.let_in(cid);
    for wanted in [false, true] {
        server.runtime.order(move |pump, now| pump.set_asked(cid, wanted, now));
    }
    let (_, mut silent) = server.adopt(false, Some(400));
    assert_eq!((silent.line(), silent.line()), ("INFO {}".into(), LATE.into()));
    known.say(b"PING\r\n");
    assert_eq!(known.line(), "PONG");
}
