//! A broker whose clients are let in by a few words in their CONNECT, with a clock to turn.

use std::collections::HashMap;
use std::sync::Arc;

use mq9_core::front::{ConnId, Event, Front, Limits, Permissions, PermissionsBuilder, Terms};

pub struct Driver {
    pub front: Front,
    connections: u64,
    pub now_us: u64,
    pub permissions: Option<Arc<Permissions>>,
    /// Connections that were told to end, and whether at once.
    pub closed: HashMap<ConnId, bool>,
    pub stalled: Vec<ConnId>,
    pub requests: Vec<(u32, String, String)>,
    /// Connections whose transport takes nothing.
    pub stuck: Vec<ConnId>,
    /// Clients need not say who they are.
    pub welcome: bool,
    /// The log of the protocol.
    pub lines: Vec<(u64, String)>,
}

impl Driver {
    pub fn new() -> Self {
        Self::with(Limits::default())
    }

    pub fn with(limits: Limits) -> Self {
        Self {
            front: Front::new(limits, 42, 0),
            connections: 0,
            now_us: 0,
            permissions: None,
            closed: HashMap::new(),
            stalled: Vec::new(),
            requests: Vec::new(),
            stuck: Vec::new(),
            welcome: false,
            lines: Vec::new(),
        }
    }

    pub fn permitting(&mut self, rules: PermissionsBuilder) {
        self.permissions = Some(Arc::new(rules.build().unwrap()));
    }

    /// A connection that has said nothing.
    pub fn open(&mut self, must_authenticate: bool) -> ConnId {
        self.connections += 1;
        self.front.open(self.connections, must_authenticate, self.now_us)
    }

    /// A connection that has said CONNECT and is quiet.
    pub fn client(&mut self) -> ConnId {
        let id = self.open(false);
        self.front.greet(id, self.now_us);
        assert_eq!(self.say(id, CONNECT), "");
        id
    }

    /// Sends bytes and returns what comes back on the same connection.
    pub fn say(&mut self, id: ConnId, text: impl AsRef<[u8]>) -> String {
        self.front.feed(id, text.as_ref(), &mut (), self.now_us);
        self.settle();
        self.hear(id)
    }

    /// What waits for a connection.
    pub fn hear(&mut self, id: ConnId) -> String {
        let heard = String::from_utf8_lossy(self.front.unwritten(id)).into_owned();
        self.front.written(id, usize::MAX);
        heard
    }

    pub fn pass_ms(&mut self, ms: u64) {
        self.now_us += ms * 1000;
        while self.front.tick(self.now_us) == Some(0) {}
        self.settle();
    }

    /// Handles events until there are none.
    pub fn settle(&mut self) {
        while let Some(id) = self.front.next_dirty() {
            if self.stuck.contains(&id) {
                let bytes = self.front.output(id).len().min(1024);
                if bytes > 0 {
                    self.front.handed(id, bytes, self.now_us);
                }
            }
        }
        while let Some(event) = self.front.next_event() {
            match event {
                Event::Connect { conn, options } => {
                    let text = String::from_utf8_lossy(&options).into_owned();
                    let terms = Terms {
                        verbose: text.contains("\"verbose\":true"),
                        pedantic: text.contains("\"pedantic\":true"),
                        echo: !text.contains("\"echo\":false"),
                        headers: !text.contains("\"headers\":false"),
                        no_responders: !text.contains("\"no_responders\":false"),
                        name: "client".into(),
                        own: text.contains("\"own\":true"),
                        permissions: self.permissions.clone(),
                    };
                    self.front.accept(conn, terms, &mut (), self.now_us);
                }
                Event::FirstCommand { conn } if self.welcome => {
                    self.front.accept(conn, Terms::default(), &mut (), self.now_us);
                }
                Event::FirstCommand { conn } => {
                    self.front.close(conn, Some(b"Authorization Violation"), "auth".into());
                }
                Event::Request(request) => self.requests.push((
                    request.service,
                    String::from_utf8_lossy(&request.subject).into_owned(),
                    String::from_utf8_lossy(&request.payload).into_owned(),
                )),
                Event::Close { conn, abort } => {
                    let before = self.closed.insert(conn, abort);
                    assert!(before.is_none() || abort, "closed twice");
                }
                Event::Line(line) => {
                    self.lines.push((line.cid, String::from_utf8_lossy(&line.text).into_owned()))
                }
                Event::Trace(trace) => self.front.publish_trace(&trace, "T"),
                Event::Stall { conn } => self.stalled.push(conn),
                Event::Hold { .. } | Event::Release { .. } | Event::Late { .. } => {}
            }
        }
    }
}

pub const CONNECT: &str = "CONNECT {\"headers\":true}\r\n";
