//! Carries out SEND, FETCH and ACK on a store, and keeps the requests that are under way.

use std::sync::Arc;

use hashbrown::HashMap;

use super::broadcasts::{Broadcasts, Told};
use super::pending::PendingReplies;
use super::push::Pushes;
use crate::commands::Shape;
use crate::error::Error;
use crate::front::{Call, Front, Handled, Outlet, Permissions, SubId};
use crate::jetstream::Outgoing;
use crate::log::Lsn;
use crate::protocol::{
    self, Answer, Command, Encoding, FetchCommand, Form, Refusal, Reply, ReplySubject, SendCommand,
    WireOptions, broadcast, parse,
};
use crate::store::{FetchOutcome, Fetched, Once, PushLimits, Store, Waits};
use crate::time::Now;

/// Long polls are answered so many bytes at a time.
const COLLECTED_BYTES: usize = 8 << 20;

/// What is looked at to answer one MAILBOX.QUERY.
const UNREAD: PushLimits = PushLimits { max_msgs: 4096, max_bytes: 1 << 20 };

/// An owner asks for what of an inbox nobody has read.
#[derive(Debug, Clone, Copy)]
pub struct Unread<'a> {
    /// The connection.
    pub cid: u64,
    /// Where it listens for the answer.
    pub reply: &'a [u8],
    /// The mailbox.
    pub address: &'a str,
    /// When it was created: the owner of another one at this address is somebody else.
    pub created_ms: u64,
    /// Payloads are base64, valid text or not.
    pub always_base64: bool,
}

/// A long poll under way.
#[derive(Debug)]
struct Poll {
    cid: u64,
    subject: ReplySubject,
    form: Form,
}

/// Requests under way: long polls, and replies that are not to leave yet.
#[derive(Debug)]
pub struct RequestHandler {
    encoding: Encoding,
    replies: PendingReplies,
    polls: HashMap<u64, Poll, foldhash::fast::RandomState>,
    /// Whose connections they are, where that is known.
    users: HashMap<u64, Arc<str>, foldhash::fast::RandomState>,
    pushes: Pushes,
    broadcasts: Broadcasts,
}

impl RequestHandler {
    /// Nothing under way.
    pub fn new(options: WireOptions) -> RequestHandler {
        RequestHandler {
            encoding: options.encoding(),
            replies: PendingReplies::default(),
            polls: HashMap::default(),
            users: HashMap::default(),
            pushes: Pushes::default(),
            broadcasts: Broadcasts::new(options.broadcasts),
        }
    }

    /// Replies that wait.
    pub fn replies(&self) -> &PendingReplies {
        &self.replies
    }

    /// Replies that wait, to be let go.
    pub fn replies_mut(&mut self) -> &mut PendingReplies {
        &mut self.replies
    }

    /// Subscriptions that are fed.
    pub fn pushes(&self) -> &Pushes {
        &self.pushes
    }

    /// The same, to go on with them.
    pub fn pushes_mut(&mut self) -> &mut Pushes {
        &mut self.pushes
    }

    /// Broadcasts that are stored.
    pub fn broadcasts(&self) -> &Broadcasts {
        &self.broadcasts
    }

    /// Takes in what readers have said: they have read, or ended.
    pub fn hear(&mut self, store: &mut Store, front: &mut Front, now: Now) {
        self.pushes.hear(store, front, &mut self.broadcasts, now);
    }

    /// Lets subscriptions have more, as far as there is room, and a round allows; true if there is more to do.
    pub fn go_on(&mut self, store: &mut Store, front: &mut Front, now: Now) -> bool {
        let more = self.pushes.go_on(store, front, &mut self.broadcasts, now);
        self.broadcasts.go_on(store, front, now);
        more || self.broadcasts.due_in_ms(now) == Some(0)
    }

    /// How long until what failed is to be tried again.
    pub fn retry_in_ms(&self, now: Now) -> Option<u64> {
        let due = [self.pushes.retry_in_ms(now), self.broadcasts.due_in_ms(now)];
        due.into_iter().flatten().min()
    }

    /// Whether somebody listens for what is not durable yet.
    pub fn is_read_when_durable(&self) -> bool {
        self.pushes.is_waiting_for_log() || self.broadcasts.is_waiting_for_log()
    }

    /// Whether a reader may go on under these rules, by which it reads from now on.
    pub fn may_feed(&mut self, reader: u64, rules: Option<&Permissions>) -> bool {
        self.broadcasts.has(reader) || self.pushes.may_feed(reader, rules)
    }

    /// Nothing beyond `acknowledged` will be durable: whoever was to be promised that is told why.
    pub fn fail(&mut self, acknowledged: Lsn, error: &Error) {
        self.broadcasts.fail(acknowledged);
        self.replies.fail(acknowledged, error);
    }

    /// Stores a broadcast, if it is to be stored.
    pub fn broadcast(&mut self, store: &mut Store, call: &Call<'_>, now: Now) -> Handled {
        let Some(read) = broadcast::read(call.subject, call.headers, call.payload) else {
            return Handled::Unknown;
        };
        let stored = read.and_then(|command| {
            let stored = self.broadcasts.store(store, call.cid, &command, now)?;
            let msg_id = i64::try_from(stored.msg_id).unwrap_or(i64::MAX);
            Ok(Answer::Sent { msg_id, duplicate: stored.duplicate })
        });
        self.answer(store, call, Shape::Sent, stored)
    }

    /// The next stored broadcast that may be told, now that the log is durable up to `acknowledged`.
    pub fn next_broadcast(&mut self, acknowledged: Lsn) -> Option<Told> {
        self.broadcasts.next(acknowledged)
    }

    /// A subscription to broadcasts begins: the number by which it catches up with what is stored, 0 if there is nothing.
    pub fn catch_up(&mut self, store: &mut Store, cid: u64, subscription: SubId, now: Now) -> u64 {
        let outlet = Outlet { cid, subscription, reader: self.pushes.number() };
        if self.broadcasts.subscribe(store, outlet, now) { outlet.reader } else { 0 }
    }

    /// Answers a request that is not carried out.
    pub fn refuse(&mut self, cid: u64, reply: &[u8], shape: Shape, refusal: Refusal) {
        if !reply.is_empty() {
            self.replies.let_go(Reply::new(cid, reply, shape, Answer::Error(refusal)));
        }
    }

    /// Carries out a request if it is one of these commands. `elsewhere` says what of a connection waits that is not known
    /// here.
    pub fn call(
        &mut self,
        store: &mut Store,
        call: &Call<'_>,
        elsewhere: impl Fn(u64) -> Waits,
        now: Now,
    ) -> Handled {
        match parse(call.subject, call.headers, call.payload, self.encoding) {
            None => Handled::Unknown,
            Some(Err((shape, refusal))) => self.answer(store, call, shape, Err(refusal)),
            Some(Ok(Command::Send(command))) => {
                let outcome = send(store, &command, now);
                self.answer(store, call, Shape::Sent, outcome)
            }
            Some(Ok(Command::Push(command))) => {
                let command = command.send(|address| store.exists(address, now));
                let outcome = command.and_then(|command| send(store, &command, now));
                self.answer(store, call, Shape::Sent, outcome)
            }
            Some(Ok(Command::Fetch(command))) => {
                self.fetch(store, command, call, elsewhere(call.cid), now)
            }
            Some(Ok(Command::Ack(command))) => {
                let outcome = store.ack(&command.ack(), now);
                let outcome = outcome.map(|()| Answer::Done).map_err(Refusal::from);
                self.answer(store, call, Shape::Plain, outcome)
            }
        }
    }

    fn fetch(
        &mut self,
        store: &mut Store,
        command: FetchCommand,
        call: &Call<'_>,
        elsewhere: Waits,
        now: Now,
    ) -> Handled {
        let FetchCommand { mut request, form } = command;
        request.conn = call.cid;
        request.user = self.users.get(&call.cid).cloned();
        let shape = form.shape();
        match store.fetch_within_quotas(request, elsewhere, now) {
            Ok(FetchOutcome::Messages(_)) if call.reply.is_empty() => {}
            Ok(FetchOutcome::Messages(batch)) => {
                let answer = form.write(&batch, false);
                let reply = Reply::new(call.cid, call.reply, shape, answer);
                self.replies.wait_for(store.shown_when(&batch), reply);
            }
            // Without a reply subject nobody waits for the answer.
            Ok(FetchOutcome::Waiting(waiter)) if call.reply.is_empty() => {
                store.cancel_wait(waiter);
            }
            Ok(FetchOutcome::Waiting(waiter)) => {
                let subject = ReplySubject::from_slice(call.reply);
                self.polls.insert(waiter, Poll { cid: call.cid, subject, form });
            }
            Err(error) => return self.answer(store, call, shape, Err(error.into())),
        }
        Handled::Done
    }

    /// Sends what JetStream has for clients, each when it is true.
    pub fn send_all(&mut self, outgoing: Vec<Outgoing>) {
        for Outgoing { known, reply } in outgoing {
            self.replies.wait_for(known, reply);
        }
    }

    /// Takes the answers to long polls that are over. After each batch of commands and each tick, if there is room for
    /// them; true if there are more than could be taken at once.
    pub fn collect(&mut self, store: &mut Store, now: Now) -> bool {
        for completion in store.some_completions(COLLECTED_BYTES, now) {
            if let Some(poll) = self.polls.remove(&completion.waiter) {
                self.finish_poll(store, poll, completion.outcome);
            }
        }
        store.has_completions()
    }

    /// Answers a long poll that is over.
    fn finish_poll(&mut self, store: &Store, poll: Poll, outcome: Result<Fetched, Error>) {
        match outcome {
            Ok(batch) => {
                let answer = poll.form.write(&batch, true);
                let reply = Reply::new(poll.cid, &poll.subject, poll.form.shape(), answer);
                self.replies.wait_for(store.shown_when(&batch), reply);
            }
            Err(error) => self.refuse_poll(&poll, error.into()),
        }
    }

    /// Answers a long poll with an error.
    fn refuse_poll(&mut self, poll: &Poll, refusal: Refusal) {
        self.refuse(poll.cid, &poll.subject, poll.form.shape(), refusal);
    }

    /// Answers with `payload` once the log is durable up to `end`, or with a refusal of this shape if it will never
    /// be; without a shape the payload promises nothing.
    pub fn reply_at(
        &mut self,
        end: Lsn,
        cid: u64,
        subject: &[u8],
        payload: Vec<u8>,
        shape: Option<Shape>,
    ) {
        let answer = Answer::Given { payload, promises: shape.is_some() };
        let shape = shape.unwrap_or(Shape::Plain);
        self.replies.wait_uncounted(end, Reply::new(cid, subject, shape, answer));
    }

    /// Gives a connection what of an inbox nobody has read, in one reply: the messages that it tells are read by it, and
    /// no others.
    pub fn give_unread(&mut self, store: &mut Store, asked: &Unread<'_>, now: Now) {
        let &Unread { cid, reply, .. } = asked;
        match self.take_unread(store, asked, now) {
            Ok(payload) => self.reply_at(store.end(), cid, reply, payload, Some(Shape::Unread)),
            Err(error) => self.refuse(cid, reply, Shape::Unread, error.into()),
        }
    }

    fn take_unread(
        &self,
        store: &mut Store,
        asked: &Unread<'_>,
        now: Now,
    ) -> Result<Vec<u8>, Error> {
        let &Unread { address, created_ms, always_base64, .. } = asked;
        let (of, unread, batch) = store.unread_of(address, UNREAD, now)?;
        // Another mailbox at the same address is another's.
        if store.mailbox(address, now)?.created_ms != created_ms {
            return Err(Error::MailboxNotFound(address.to_owned()));
        }
        let encoding = if always_base64 { Encoding::Base64 } else { self.encoding };
        let (payload, given) = protocol::unread(address, unread, &batch, encoding);
        let given: Vec<_> =
            batch.iter().take(given).map(|(meta, _)| (meta.level, meta.msg_id)).collect();
        store.take_unread(of, &given, now)?;
        Ok(payload)
    }

    /// Ends the long polls of a connection that these rules do not allow: whoever may not fetch (any more) is given
    /// nothing. Says to which subjects they were published.
    pub fn enforce(&mut self, store: &mut Store, cid: u64, rules: &Permissions) -> Vec<Vec<u8>> {
        let mut ended = Vec::new();
        for waiter in store.waits(cid) {
            let Some(poll) = self.polls.get(&waiter) else { continue };
            let subject = poll.form.subject();
            if rules.may_publish(&subject) || !store.cancel_wait(waiter) {
                continue;
            }
            if let Some(poll) = self.polls.remove(&waiter) {
                let shown = String::from_utf8_lossy(&subject);
                let text = format!("the permission to publish to {shown:?} has ended");
                self.refuse_poll(&poll, Refusal { kind: "access_denied".into(), text });
            }
            ended.push(subject);
        }
        ended
    }

    /// The connection is a user's from now on, or nobody's.
    pub fn set_user(&mut self, cid: u64, user: Option<Arc<str>>) {
        match user {
            Some(user) => self.users.insert(cid, user),
            None => self.users.remove(&cid),
        };
    }

    /// A connection has closed: its long polls end unanswered, what it held goes back.
    pub fn disconnect(&mut self, store: &mut Store, cid: u64, now: Now) {
        self.users.remove(&cid);
        self.pushes.disconnect(cid);
        for waiter in store.disconnect(cid, now) {
            self.polls.remove(&waiter);
        }
    }

    /// Holds a reply until what was just done is durable, or lets an error go at once.
    fn answer(
        &mut self,
        store: &Store,
        call: &Call<'_>,
        shape: Shape,
        outcome: Result<Answer, Refusal>,
    ) -> Handled {
        match outcome {
            Ok(_) if call.reply.is_empty() => {}
            Err(_) if call.reply.is_empty() => return Handled::Refused,
            Ok(answer) => {
                let reply = Reply::new(call.cid, call.reply, shape, answer);
                self.replies.wait_for(store.end(), reply);
            }
            Err(refusal) => {
                self.refuse(call.cid, call.reply, shape, refusal);
            }
        }
        Handled::Done
    }

    /// Panics if long polls and waits in the store, or replies and their counters, do not agree. For tests.
    pub fn check_invariants(&self, store: &Store) {
        self.replies.check_invariants();
        self.pushes.check_invariants(store);
        self.broadcasts.check_invariants();
        assert!(self.polls.len() >= store.waiting(), "a wait that nobody would answer");
    }
}

/// Stores a message, unless one with its id is there already.
fn send(store: &mut Store, command: &SendCommand<'_>, now: Now) -> Result<Answer, Refusal> {
    let (address, message) = (command.address, command.send());
    let Once { msg_id, duplicate } = match command.id() {
        "" => Once { msg_id: store.send(address, &message, now)?, duplicate: false },
        id => store.send_once(address, id, &message, now)?,
    };
    let msg_id = msg_id.map_or(-1, |id| i64::try_from(id).unwrap_or(i64::MAX));
    Ok(Answer::Sent { msg_id, duplicate })
}
