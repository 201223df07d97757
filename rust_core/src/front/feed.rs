//! Received bytes become commands, and commands are carried out in order.

use std::sync::Arc;

use memchr::memchr;

use super::conn::{Phase, Terms};
use super::permissions::Permissions;
use super::publish::violation;
use super::{Call, ConnId, Event, Front, Handler, RESERVED};
use crate::nats::{Command, Decoded, Fault, Publish, decode};

/// What may come in while a connection is not to be read from, beyond one message.
const HELD_INPUT_BYTES: usize = 1 << 20;

/// How the loop over the commands of a chunk goes on.
enum Next {
    /// This many bytes are done with.
    Done(usize),
    /// Nothing more can be done now.
    Stop,
}

impl Front {
    /// Carries out the commands that `chunk` completes. Incomplete ones wait for more.
    pub fn feed(&mut self, id: ConnId, chunk: &[u8], handler: &mut dyn Handler, now_us: u64) {
        self.now_us = now_us;
        let Some(conn) = self.conn_mut(id) else { return };
        conn.active_us = now_us;
        let mut rest = chunk;
        while !rest.is_empty() {
            let Some(conn) = self.conn_mut(id) else { return };
            match conn.phase {
                Phase::Closing => return,
                Phase::Deciding { .. } => return self.hold_input(id, rest),
                Phase::Fresh | Phase::Open if conn.held => return self.hold_input(id, rest),
                Phase::Fresh | Phase::Open => {}
            }
            if conn.skip > 0 {
                let skipped = conn.skip.min(rest.len());
                conn.skip -= skipped;
                rest = &rest[skipped..];
                continue;
            }
            if conn.input.is_empty() {
                let used = self.run(id, rest, handler, now_us);
                return self.keep(id, &rest[used..]);
            }
            // Completes the command that waits and no more: the others are read where they are.
            let missing = match conn.need.checked_sub(conn.input.len()) {
                Some(missing @ 1..) => missing,
                _ => memchr(b'\n', rest).map_or(rest.len(), |feed| feed + 1),
            };
            let (completing, others) = rest.split_at(missing.min(rest.len()));
            conn.input.extend_from_slice(completing);
            rest = others;
            self.resume(id, handler, now_us);
        }
    }

    /// Lets a client in on these terms and goes on with the input that was held.
    pub fn accept(&mut self, id: ConnId, terms: Terms, handler: &mut dyn Handler, now_us: u64) {
        self.now_us = now_us;
        let Some(conn) = self.conn_mut(id) else { return };
        let Phase::Deciding { asked } = conn.phase else { return };
        conn.phase = Phase::Open;
        let again = std::mem::replace(&mut conn.connected, true);
        let own = terms.own;
        conn.terms = terms;
        conn.route = Default::default();
        conn.filtered = false;
        let confirm = asked && conn.terms.verbose;
        let greeted = conn.ping.is_some();
        self.set_own(id, own);
        self.cancel_deadline(id);
        if greeted && !again {
            // The first sign of life is asked for some time after CONNECT, not after the greeting.
            self.cancel_ping(id);
            self.schedule_first_ping(id, now_us);
        }
        if asked && again {
            // Whoever says CONNECT again may be somebody else.
            self.end_all_subscriptions(id);
        }
        self.enforce_permissions(id, handler);
        if confirm {
            self.write(id, b"+OK\r\n");
        }
        self.resume(id, handler, now_us);
    }

    /// Other permissions from now on: subscriptions and waits they do not allow end, and the client is told.
    pub fn set_permissions(
        &mut self,
        id: ConnId,
        permissions: Option<Arc<Permissions>>,
        handler: &mut dyn Handler,
    ) {
        let Some(conn) = self.conn_mut(id) else { return };
        conn.terms.permissions = permissions;
        conn.route = Default::default();
        conn.filtered = false;
        self.enforce_permissions(id, handler);
    }

    /// Keeps input that must not be looked at yet. Little of it comes: the caller was told not to
    /// read.
    fn hold_input(&mut self, id: ConnId, input: &[u8]) {
        let most = self.limits.max_payload + self.limits.max_control_line + HELD_INPUT_BYTES;
        let Some(conn) = self.conn_mut(id) else { return };
        if conn.input.len() + input.len() > most {
            self.close(id, None, "Protocol Violation".into());
        } else {
            conn.input.extend_from_slice(input);
        }
    }

    /// Goes on with input that was held or incomplete.
    pub(super) fn resume(&mut self, id: ConnId, handler: &mut dyn Handler, now_us: u64) {
        let Some(conn) = self.conn_mut(id) else { return };
        if conn.input.len() < conn.need || conn.input.is_empty() {
            return;
        }
        let mut input = std::mem::take(&mut conn.input);
        let used = self.run(id, &input, handler, now_us);
        if used == 0
            && let Some(conn) = self.conn_mut(id)
            && conn.phase != Phase::Closing
        {
            std::mem::swap(&mut conn.input, &mut input);
        } else {
            self.keep(id, &input[used..]);
        }
    }

    /// Keeps input that is not a whole command, or not to be looked at yet.
    fn keep(&mut self, id: ConnId, input: &[u8]) {
        if let Some(conn) = self.conn_mut(id)
            && conn.phase != Phase::Closing
        {
            conn.input.extend_from_slice(input);
        }
    }

    /// Carries out the commands at the front of `input` and returns their length.
    fn run(&mut self, id: ConnId, input: &[u8], handler: &mut dyn Handler, now_us: u64) -> usize {
        let mut at = 0;
        while at < input.len() {
            match self.step(id, &input[at..], handler, now_us) {
                Next::Done(bytes) => at += bytes,
                Next::Stop => break,
            }
        }
        at
    }

    fn step(&mut self, id: ConnId, input: &[u8], handler: &mut dyn Handler, now_us: u64) -> Next {
        let max_line = self.limits.max_control_line;
        let Some(conn) = self.conn_mut(id) else { return Next::Stop };
        match conn.phase {
            Phase::Open => {}
            Phase::Deciding { .. } | Phase::Closing => return Next::Stop,
            Phase::Fresh if input[0].eq_ignore_ascii_case(&b'C') => {}
            Phase::Fresh => {
                conn.phase = Phase::Deciding { asked: false };
                self.events.push_back(Event::FirstCommand { conn: id });
                return Next::Stop;
            }
        }
        conn.need = 0;
        match decode(input, max_line) {
            Decoded::Command(Command::Publish(publish), line) => {
                // One that was admitted has been here before.
                if self.logging && self.conn(id).is_some_and(|conn| !conn.admitted) {
                    self.log_said(id, &Command::Publish(publish), &input[..line]);
                }
                self.publish_step(id, publish, line, input, handler, now_us)
            }
            Decoded::Command(command, line) => {
                if self.logging {
                    self.log_said(id, &command, &input[..line]);
                }
                self.carry_out(id, command, handler, now_us);
                Next::Done(line)
            }
            Decoded::Incomplete => Next::Stop,
            Decoded::Fault(fault) => {
                self.fault(id, fault);
                Next::Stop
            }
        }
    }

    fn publish_step(
        &mut self,
        id: ConnId,
        publish: Publish<'_>,
        line: usize,
        input: &[u8],
        handler: &mut dyn Handler,
        now_us: u64,
    ) -> Next {
        let reserved = publish.subject.starts_with(RESERVED);
        let admitted = self.conn(id).is_some_and(|conn| conn.admitted);
        if !admitted {
            if reserved && publish.size > self.limits.max_payload {
                return self.refuse(id, &publish, line, input.len(), handler, now_us);
            }
            if !self.admit(id, &publish) {
                return Next::Stop;
            }
        }
        let end = line + publish.size;
        match (input.get(end), input.get(end + 1)) {
            (Some(b'\r'), Some(b'\n')) => {
                if (publish.subject.starts_with(b"$") || self.jetstream)
                    && !self.may_ask(id, publish.subject, handler)
                {
                    return Next::Stop;
                }
                if admitted && let Some(conn) = self.conn_mut(id) {
                    conn.admitted = false;
                }
                self.publish_from(id, &publish, &input[line..end + 2], handler, now_us);
                Next::Done(end + 2)
            }
            (None, _) | (Some(b'\r'), None) => {
                if let Some(conn) = self.conn_mut(id) {
                    conn.admitted = true;
                    // Up to the end of the payload nothing can be wrong.
                    conn.need = end + 1 + usize::from(input.len() > end);
                }
                Next::Stop
            }
            _ => {
                self.fault(id, Fault::Unknown);
                Next::Stop
            }
        }
    }

    /// Answers a request that is too large without reading it: the connection lives on.
    fn refuse(
        &mut self,
        id: ConnId,
        publish: &Publish<'_>,
        line: usize,
        available: usize,
        handler: &mut dyn Handler,
        now_us: u64,
    ) -> Next {
        let whole = line + publish.size + 2;
        let Some(conn) = self.conn_mut(id) else { return Next::Stop };
        conn.skip = whole.saturating_sub(available);
        if !conn.may_be_answered_at(publish.reply) {
            self.write_err(id, &violation(b"Publish with Reply of", publish.reply));
        } else if conn.may_publish(publish.subject, now_us) {
            let (cid, subject, reply) = (conn.cid, publish.subject, publish.reply);
            if reply.is_empty() {
                self.refused(cid, subject);
            } else {
                let call = Call { cid, subject, reply, headers: b"", payload: b"" };
                let limit = self.limits.max_payload;
                let problem = format!("the payload has more than max_payload ({limit}) bytes");
                handler.refuse(&call, "message_too_large", problem);
            }
        } else {
            self.write_err(id, &violation(b"Publish to", publish.subject));
        }
        Next::Done(whole.min(available))
    }

    fn carry_out(
        &mut self,
        id: ConnId,
        command: Command<'_>,
        handler: &mut dyn Handler,
        now_us: u64,
    ) {
        match command {
            Command::Publish(_) => unreachable!("publishing has its own path"),
            Command::Subscribe { subject, queue, sid } => {
                self.subscribe(id, subject, queue, sid, handler);
            }
            Command::Unsubscribe { sid, max } => self.unsubscribe(id, sid, max),
            Command::Ping => self.write(id, b"PONG\r\n"),
            Command::Pong => self.pong(id, now_us),
            Command::Connect(options) => {
                if let Some(conn) = self.conn_mut(id) {
                    conn.phase = Phase::Deciding { asked: true };
                    self.expect_decision(id);
                    self.events.push_back(Event::Connect { conn: id, options: options.into() });
                }
            }
            Command::Info(text) => {
                if !looks_like_json_object(text) {
                    self.close(id, None, "Protocol Violation".into());
                }
            }
            Command::Ok => {}
            Command::Err => self.close(id, None, "Parse Error".into()),
        }
    }

    fn fault(&mut self, id: ConnId, fault: Fault) {
        match fault {
            Fault::Unknown => {
                self.close(id, Some(b"Unknown Protocol Operation"), "Protocol Violation".into());
            }
            Fault::TooLong => {
                let error = b"maximum control line exceeded";
                self.close(id, Some(error), "Maximum Control Line Exceeded".into());
            }
            Fault::Arguments => self.close(id, None, "Protocol Violation".into()),
        }
    }
}

/// What a client says in `INFO` is not used: only text that is no object at all ends the connection.
fn looks_like_json_object(text: &[u8]) -> bool {
    let text = text.trim_ascii();
    text.starts_with(b"{") && text.ends_with(b"}")
}
