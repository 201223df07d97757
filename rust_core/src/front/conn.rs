//! State that the broker keeps for one connection.

use std::borrow::Cow;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::permissions::Permissions;
use super::replies::Replies;
use crate::router::{Route, Sid, SubId};
use crate::timer::TimerKey;

/// How far a connection has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// It has to authenticate, and has not sent a command.
    Fresh,
    /// The caller is deciding on it; input is held.
    Deciding {
        /// Because of a `CONNECT`, which is confirmed like other commands.
        asked: bool,
    },
    /// Its commands are carried out.
    Open,
    /// Nothing of it is read any more.
    Closing,
}

/// What a client asked for in its `CONNECT`, and what it may do.
#[derive(Debug, Clone)]
pub struct Terms {
    /// Confirm every command.
    pub verbose: bool,
    /// Check subjects strictly.
    pub pedantic: bool,
    /// Deliver the client's own messages to it.
    pub echo: bool,
    /// It understands headers.
    pub headers: bool,
    /// Tell it when nobody listens to a request.
    pub no_responders: bool,
    /// What it calls itself.
    pub name: Box<str>,
    /// A part of the broker itself, which does not count as a client.
    pub own: bool,
    /// What it may publish and subscribe to; everything if absent.
    pub permissions: Option<Arc<Permissions>>,
}

impl Default for Terms {
    /// Those of a client that never sends `CONNECT`.
    fn default() -> Self {
        Self {
            verbose: true,
            pedantic: true,
            echo: true,
            headers: false,
            no_responders: false,
            name: Box::default(),
            own: false,
            permissions: None,
        }
    }
}

#[derive(Debug)]
pub(super) struct Conn {
    pub cid: u64,
    pub phase: Phase,
    pub terms: Terms,
    /// It has been let in by a `CONNECT`.
    pub connected: bool,
    /// Input that is not a whole command yet.
    pub input: Vec<u8>,
    /// The length of `input` before which looking at it again is in vain.
    pub need: usize,
    /// The publish at the front of `input` has passed the checks of its line.
    pub admitted: bool,
    /// Bytes to come that are not kept: the rest of a request that is too large.
    pub skip: usize,
    /// The request at the front of `input` waits for room.
    pub held: bool,
    /// What is to be written to the client, from `written` on.
    pub output: Vec<u8>,
    /// How much of `output` has been written already.
    pub written: usize,
    pub dirty: bool,
    /// Requests that are with the caller, who has not taken them yet, and their bytes.
    pub requests: usize,
    pub request_bytes: usize,
    /// Bytes that the caller has taken and not yet got rid of.
    pub in_flight: usize,
    pub sids: HashMap<Sid, SubId, FixedState>,
    /// Where its last message went, and whether it may publish there.
    pub route: Route,
    pub allowed: bool,
    /// Which stream wants messages of the subject of `route`, by this version of them.
    pub stream: (u64, Option<u32>),
    /// Where the last answer to it went.
    pub inbox: Route,
    pub replies: Replies,
    /// A wildcard subscription reaches into what the client must not read.
    pub filtered: bool,
    /// How many of its subscriptions are fed from mailboxes.
    pub readers: usize,
    /// A reader of a mailbox waits until some of the output has gone.
    pub thirsty: bool,
    /// Pings that were written, and pongs that came.
    pub pings: u64,
    pub pongs: u64,
    /// The ping whose pong somebody waits for.
    pub sign: Option<u64>,
    pub ping: Option<TimerKey>,
    pub pings_out: u32,
    pub ping_sent_us: Option<u64>,
    pub deadline: Option<TimerKey>,
    pub write_deadline: Option<TimerKey>,
    pub opened_us: u64,
    pub active_us: u64,
    pub rtt_us: u64,
    pub in_msgs: u64,
    pub in_bytes: u64,
    pub out_msgs: u64,
    pub out_bytes: u64,
    pub reason: Option<Cow<'static, str>>,
}

/// Counters of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnStats {
    /// Its number.
    pub cid: u64,
    /// Messages it has published.
    pub in_msgs: u64,
    /// Their bytes.
    pub in_bytes: u64,
    /// Messages delivered to it.
    pub out_msgs: u64,
    /// Their bytes.
    pub out_bytes: u64,
    /// Bytes it has yet to read.
    pub pending_bytes: usize,
    /// Its subscriptions.
    pub subscriptions: usize,
    /// Time of its last ping and pong; 0 if there was none.
    pub rtt_us: u64,
    /// When it came.
    pub opened_us: u64,
    /// When it was last heard of.
    pub active_us: u64,
}

impl Conn {
    pub fn new(cid: u64, must_authenticate: bool, hasher: FixedState, now_us: u64) -> Self {
        Self {
            cid,
            phase: if must_authenticate { Phase::Fresh } else { Phase::Open },
            terms: Terms::default(),
            connected: false,
            input: Vec::new(),
            need: 0,
            admitted: false,
            skip: 0,
            held: false,
            output: Vec::new(),
            written: 0,
            dirty: false,
            requests: 0,
            request_bytes: 0,
            in_flight: 0,
            sids: HashMap::with_hasher(hasher),
            route: Route::default(),
            allowed: false,
            stream: super::publish::STREAM_UNKNOWN,
            inbox: Route::default(),
            replies: Replies::default(),
            filtered: false,
            readers: 0,
            thirsty: false,
            pings: 0,
            pongs: 0,
            sign: None,
            ping: None,
            pings_out: 0,
            ping_sent_us: None,
            deadline: None,
            write_deadline: None,
            opened_us: now_us,
            active_us: now_us,
            rtt_us: 0,
            in_msgs: 0,
            in_bytes: 0,
            out_msgs: 0,
            out_bytes: 0,
            reason: None,
        }
    }

    /// Bytes the client has yet to read.
    pub fn pending(&self) -> usize {
        self.output.len() - self.written + self.in_flight
    }

    pub fn stats(&self) -> ConnStats {
        ConnStats {
            cid: self.cid,
            in_msgs: self.in_msgs,
            in_bytes: self.in_bytes,
            out_msgs: self.out_msgs,
            out_bytes: self.out_bytes,
            pending_bytes: self.pending(),
            subscriptions: self.sids.len(),
            rtt_us: self.rtt_us,
            opened_us: self.opened_us,
            active_us: self.active_us,
        }
    }
}
