//! Maps subjects to requests of the JetStream API.

use serde_json::{Map, Value};

use super::consumers::Form;
use super::{ApiError, JetStream, error, reads, unserved};
use crate::front::{Call, Handled, Listeners};
use crate::store::Store;
use crate::time::Now;

/// Subjects of the API begin like this.
pub const API: &[u8] = b"$JS.API.";

/// What a request is answered with: members besides `type`, or a refusal.
pub type Outcome = Result<Map<String, Value>, ApiError>;

/// How a request ended: what kind of answer it is, and what it says.
pub struct Answer {
    /// The last part of its `type`.
    pub kind: &'static str,
    pub outcome: Outcome,
    /// Members that are there in a refusal too.
    pub always: Map<String, Value>,
}

impl Answer {
    pub fn new(kind: &'static str, outcome: Outcome) -> Answer {
        Answer { kind, outcome, always: Map::new() }
    }

    pub(super) fn text(self) -> Vec<u8> {
        let mut members = self.always;
        let kind = format!("io.nats.jetstream.api.v1.{}_response", self.kind);
        members.insert("type".to_owned(), Value::String(kind));
        match self.outcome {
            Ok(said) => members.extend(said),
            Err(error) => {
                members.insert("error".to_owned(), error.value());
            }
        }
        serde_json::to_vec(&Value::Object(members)).unwrap_or_default()
    }
}

/// The members of a JSON object.
pub fn members(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

/// The level of the API that is served.
pub const LEVEL: u64 = 0;
const REQUIRED_LEVEL: &str = "Nats-Required-Api-Level";

/// The level that a request asks for; what is no number is not served.
fn required_level(headers: &[u8]) -> u64 {
    if headers.is_empty() {
        return 0;
    }
    let text = String::from_utf8_lossy(headers);
    let lines = text.split("\r\n").filter_map(|line| line.split_once(':'));
    let asked = lines.filter(|(name, _)| *name == REQUIRED_LEVEL).map(|(_, value)| value.trim());
    asked.map(|value| value.parse().unwrap_or(u64::MAX)).max().unwrap_or(0)
}

/// The kind of answer that a request is given.
fn kind(tokens: &[&str]) -> Option<&'static str> {
    Some(match *tokens {
        ["INFO"] => "account_info",
        ["STREAM", "CREATE", _] => "stream_create",
        ["STREAM", "UPDATE", _] => "stream_update",
        ["STREAM", "INFO", _] => "stream_info",
        ["STREAM", "DELETE", _] => "stream_delete",
        ["STREAM", "PURGE", _] => "stream_purge",
        ["STREAM", "NAMES"] => "stream_names",
        ["STREAM", "LIST"] => "stream_list",
        ["STREAM", "MSG", "GET", _] => "stream_msg_get",
        ["STREAM", "MSG", "DELETE", _] => "stream_msg_delete",
        ["CONSUMER", "CREATE", ..] | ["CONSUMER", "DURABLE", "CREATE", ..] => "consumer_create",
        ["CONSUMER", "INFO", _, _] => "consumer_info",
        ["CONSUMER", "DELETE", _, _] => "consumer_delete",
        ["CONSUMER", "NAMES", _] => "consumer_names",
        ["CONSUMER", "LIST", _] => "consumer_list",
        _ => return unserved::kind(tokens),
    })
}

impl JetStream {
    /// Carries out a request. Nobody answers subjects that are not of the API; that is no reason to say so.
    pub(super) fn request(
        &mut self,
        store: &mut Store,
        call: &Call<'_>,
        now: Now,
        listeners: &dyn Listeners,
    ) -> Handled {
        let Some(name) = call.subject.strip_prefix(API) else { return Handled::Unknown };
        let Ok(name) = std::str::from_utf8(name) else { return Handled::Done };
        let tokens: Vec<&str> = name.split('.').collect();
        if let ["CONSUMER", "MSG", "NEXT", stream, consumer] = *tokens {
            return self.pull(store, (stream, consumer), call, now, listeners);
        }
        if let Some(target) = reads::direct_target(name) {
            return self.get_direct(store, target, call);
        }
        let before = store.end();
        if let Some(answer) = self.carry_out(store, &tokens, call, now, listeners) {
            self.count(&answer);
            let known = store.end();
            self.answer(call, known, known != before, answer.text());
        }
        Handled::Done
    }

    pub(super) fn count(&mut self, answer: &Answer) {
        self.requests += 1;
        self.errors += u64::from(answer.outcome.is_err());
    }

    fn carry_out(
        &mut self,
        store: &mut Store,
        tokens: &[&str],
        call: &Call<'_>,
        now: Now,
        listeners: &dyn Listeners,
    ) -> Option<Answer> {
        let (body, by) = (call.payload, Some((call.cid, listeners)));
        if required_level(call.headers) > LEVEL {
            return kind(tokens).map(|kind| Answer::new(kind, Err(error::API_LEVEL)));
        }
        Some(match *tokens {
            ["INFO"] => self.account(store),
            ["STREAM", "CREATE", stream] => self.create_stream(store, stream, call, now),
            ["STREAM", "UPDATE", stream] => self.update_stream(store, stream, body, now),
            ["STREAM", "INFO", stream] => self.stream_info(store, stream, body, now),
            ["STREAM", "DELETE", stream] => self.delete_stream(store, stream, now),
            ["STREAM", "PURGE", stream] => return self.purge_stream(store, stream, call, now),
            ["STREAM", "NAMES"] => self.stream_names(body),
            ["STREAM", "LIST"] => self.stream_list(store, body, now),
            ["STREAM", "MSG", "GET", stream] => self.get_message(store, stream, body),
            ["STREAM", "MSG", "DELETE", stream] => self.delete_message(store, stream, body, now),
            ["CONSUMER", "CREATE", stream] => {
                self.create_consumer(store, stream, Form::Nameless, body, by, now)
            }
            ["CONSUMER", "CREATE", stream, name] => {
                self.create_consumer(store, stream, Form::Named(name, None), body, by, now)
            }
            ["CONSUMER", "CREATE", stream, name, ref filter @ ..] => {
                let filter = filter.join(".");
                let form = Form::Named(name, Some(&filter));
                self.create_consumer(store, stream, form, body, by, now)
            }
            ["CONSUMER", "DURABLE", "CREATE", stream, name] => {
                self.create_consumer(store, stream, Form::Durable(name), body, by, now)
            }
            ["CONSUMER", "INFO", stream, name] => {
                // A request whose inbox has gone does not wait any more.
                if let Ok(key) = self.find_consumer(store, stream, name) {
                    self.prune(store, key, now, listeners);
                }
                self.consumer_info(store, stream, name, now)
            }
            ["CONSUMER", "DELETE", stream, name] => self.delete_consumer(store, stream, name, now),
            ["CONSUMER", "NAMES", stream] => self.consumer_names(store, stream, body),
            ["CONSUMER", "LIST", stream] => self.consumer_list(store, stream, body, now),
            _ => return self.refuse(store, tokens, body),
        })
    }
}
