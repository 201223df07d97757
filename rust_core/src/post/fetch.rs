//! FETCH: messages now, or as soon as there are some.

use super::entry::Encoding;
use super::reply::{Answer, Shape};
use super::request::{self, Deliver, FetchBody, Format};
use super::{Call, Called, Post, Refusal, Reply, ReplySubject, address_of};
use crate::error::Error;
use crate::store::{Fetch, FetchOutcome, Fetched, GroupFetch, MemberId, Start, Store};
use crate::time::Now;

/// A long poll under way.
#[derive(Debug)]
pub(super) struct Poll {
    pub cid: u64,
    subject: ReplySubject,
    form: Form,
}

/// How the messages are to be written.
#[derive(Debug)]
pub(super) struct Form {
    format: Format,
    encoding: Encoding,
    /// For the reply subjects of raw messages.
    address: String,
    group: Option<String>,
    waited: bool,
}

impl Post {
    pub(super) fn fetch(
        &mut self,
        store: &mut Store,
        address: &[u8],
        call: &Call<'_>,
        now: Now,
    ) -> Called {
        let parsed = address_of(address).and_then(|address| {
            let body: FetchBody = request::read(call.payload)?;
            self.plan(address, body, call.cid)
        });
        let (request, form) = match parsed {
            Ok(parsed) => parsed,
            Err(refusal) => return self.answer(store, call, Shape::Messages, Err(refusal)),
        };
        let shape = form.shape();
        if let Err(error) = store.check_waits(&request) {
            return self.answer(store, call, shape, Err(error.into()));
        }
        match store.fetch(request, now) {
            Ok(FetchOutcome::Messages(_)) if call.reply.is_empty() => {}
            Ok(FetchOutcome::Messages(batch)) => {
                let answer = form.write(&batch);
                self.keep(batch.known(), Reply::new(call.cid, call.reply, shape, answer));
            }
            // Without a reply subject nobody waits for the answer.
            Ok(FetchOutcome::Waiting(waiter)) if call.reply.is_empty() => {
                store.cancel_wait(waiter);
            }
            Ok(FetchOutcome::Waiting(waiter)) => {
                let subject = ReplySubject::from_slice(call.reply);
                let form = Form { waited: true, ..form };
                self.polls.insert(waiter, Poll { cid: call.cid, subject, form });
            }
            Err(error) => return self.answer(store, call, shape, Err(error.into())),
        }
        Called::Done
    }

    /// Answers a long poll that is over.
    pub(super) fn finish_poll(&mut self, poll: Poll, outcome: Result<Fetched, Error>) {
        let shape = poll.form.shape();
        match outcome {
            Ok(batch) => {
                let answer = poll.form.write(&batch);
                self.keep(batch.known(), Reply::new(poll.cid, &poll.subject, shape, answer));
            }
            Err(error) => self.refuse_poll(poll, error.to_string()),
        }
    }

    /// Answers a long poll with an error.
    pub(super) fn refuse_poll(&mut self, poll: Poll, problem: String) {
        let (shape, answer) = (poll.form.shape(), Answer::Error(problem));
        self.let_go(Reply::new(poll.cid, &poll.subject, shape, answer));
    }

    fn plan(&self, address: &str, body: FetchBody, cid: u64) -> Result<(Fetch, Form), Refusal> {
        let config = body.config.unwrap_or_default();
        let start = match (body.deliver.unwrap_or(Deliver::Latest), body.from_time, body.from_id) {
            (Deliver::Latest, ..) => Start::Latest,
            (Deliver::Earliest, ..) => Start::Earliest,
            (Deliver::FromTime, Some(seconds), _) => Start::Since(seconds.saturating_mul(1000)),
            (Deliver::FromTime, None, _) => {
                return Err("deliver is \"from_time\", but from_time is missing".into());
            }
            (Deliver::FromId, _, Some(id)) => Start::Id(id),
            (Deliver::FromId, _, None) => {
                return Err("deliver is \"from_id\", but from_id is missing".into());
            }
        };
        let force = body.force_deliver.unwrap_or(false);
        let group = match (body.group_name, body.member) {
            (Some(name), member) => {
                let member = member.map_or(MemberId::Conn, MemberId::Named);
                Some(GroupFetch { name, member, force })
            }
            (None, Some(_)) => return Err("member is given, but group_name is missing".into()),
            (None, None) if config.held == Some(false) => {
                return Err("config.held is given, but group_name is missing".into());
            }
            (None, None) if force => {
                return Err("force_deliver is given, but group_name is missing".into());
            }
            (None, None) => None,
        };
        let format = config.format.unwrap_or_default();
        let encoding = if body.encoding.is_some() { Encoding::Base64 } else { self.encoding };
        let form = Form {
            format,
            encoding,
            address: address.to_owned(),
            group: group.as_ref().map(|group| group.name.clone()),
            waited: false,
        };
        let request = Fetch {
            address: address.to_owned(),
            group,
            start,
            max_msgs: config.num_msgs()?,
            max_bytes: config.max_bytes()?,
            max_level: config.max_level()?,
            ack_wait_ms: config.ack_wait_ms()?,
            held: config.held.unwrap_or(true),
            wait_ms: config.max_wait_ms()?,
            conn: cid,
            user: self.users.get(&cid).cloned(),
        };
        Ok((request, form))
    }
}

impl Poll {
    /// The subject of the FETCH.
    pub(super) fn published_to(&self) -> Vec<u8> {
        [super::FETCH, self.form.address.as_bytes()].concat()
    }
}

impl Form {
    fn shape(&self) -> Shape {
        match self.format {
            Format::Json => Shape::Messages,
            Format::Raw => Shape::Raw,
        }
    }

    fn write(&self, batch: &Fetched) -> Answer {
        match self.format {
            Format::Json => Answer::Text(super::entry::write_json(batch, self.encoding)),
            Format::Raw => {
                let group = self.group.as_deref();
                let status = match (batch.is_empty(), self.waited) {
                    (false, _) => "204 Batch Completed",
                    (true, true) => "408 Request Timeout",
                    (true, false) => "404 No Messages",
                };
                Answer::Raw(super::entry::write_raw(batch, &self.address, group, status))
            }
        }
    }
}
