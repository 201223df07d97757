//! Streams and consumers that the broker's configuration declares: made where they are missing, changed where they may
//! be, never removed.
//!
//! Owns whether what is declared goes together, before there is a store, and what becomes of it. Must not know files.

use serde_json::{Value, json};

use super::consumer_config::ConsumerConfig;
use super::consumers::Form;
use super::error::{self, ApiError};
use super::stream_config::Retention;
use super::{JetStream, StreamConfig};
use crate::front::Call;
use crate::nats::{self, Overlap, PatternSet};
use crate::store::Store;
use crate::time::Now;

/// What became of something that is declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Declared {
    /// It is there as declared.
    Unchanged,
    /// It was missing.
    Created,
    /// It was different.
    Changed,
}

/// A consumer as it is declared.
#[derive(Debug, Clone)]
pub struct DeclaredConsumer {
    /// Its stream; empty for the declared one that has its subjects.
    pub stream: String,
    /// Its name.
    pub name: String,
    /// Its configuration, as JSON.
    pub config: String,
}

/// What is known of a declaration without a store.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// The stream of each consumer; empty where that cannot be said.
    pub homes: Vec<String>,
    /// What is wrong: with which of all streams and then consumers, and why.
    pub problems: Vec<(usize, String)>,
}

impl JetStream {
    /// Makes a stream, or changes it.
    pub fn declare_stream(
        &mut self,
        store: &mut Store,
        config: &str,
        now: Now,
    ) -> Result<Declared, ApiError> {
        let wanted = StreamConfig::parse(config.as_bytes())?.settle()?;
        let name = wanted.name.clone();
        match self.find(&name) {
            Some((_, served)) if served.config == wanted => return Ok(Declared::Unchanged),
            Some(_) => {
                let answer = self.update_stream(store, &name, config.as_bytes(), now);
                return answer.outcome.map(|_| Declared::Changed);
            }
            None => {}
        }
        let payload = config.as_bytes();
        let call = Call { cid: 0, subject: b"", reply: b"", headers: b"", payload };
        let answer = self.create_stream(store, &name, &call, now);
        answer.outcome.map(|_| Declared::Created)
    }

    /// Makes a consumer, or changes it.
    pub fn declare_consumer(
        &mut self,
        store: &mut Store,
        consumer: &DeclaredConsumer,
        now: Now,
    ) -> Result<Declared, ApiError> {
        let DeclaredConsumer { stream, name, config } = consumer;
        let before = self.consumer_text(store, stream, name);
        let config: Value = serde_json::from_str(config).map_err(|error| ApiError::json(&error))?;
        let request = json!({"stream_name": stream, "config": config});
        let form = Form::Durable(name);
        self.make_room_for_dead_letters(store, stream, &request, now);
        let body = request.to_string();
        let answer = self.create_consumer(store, stream, form, body.as_bytes(), None, now);
        answer.outcome?;
        Ok(match before {
            None => Declared::Created,
            Some(text) if self.consumer_text(store, stream, name) == Some(text.clone()) => {
                Declared::Unchanged
            }
            Some(_) => Declared::Changed,
        })
    }

    fn consumer_text(&self, store: &Store, stream: &str, name: &str) -> Option<String> {
        let key = self.find_consumer(store, stream, name).ok()?;
        Some(store.consumer_info(key)?.config.to_string())
    }
}

/// Whether all of it can be made in an empty store.
pub fn check(streams: &[(String, String)], consumers: &[DeclaredConsumer]) -> Checked {
    let mut checked = Checked::default();
    let mut settled: Vec<StreamConfig> = Vec::new();
    for (ix, (name, config)) in streams.iter().enumerate() {
        let parsed = StreamConfig::parse(config.as_bytes()).and_then(StreamConfig::settle);
        let outcome = parsed.map_err(|error| error.description.into_owned()).and_then(|config| {
            check_beside(&settled, &config)?;
            Ok(config)
        });
        match outcome {
            Ok(config) => settled.push(config),
            Err(why) => checked.problems.push((ix, format!("stream {name}: {why}"))),
        }
    }
    // Where a stream is wrong, what its consumers lack cannot be said.
    if !checked.problems.is_empty() {
        return checked;
    }
    let mut others: Vec<(String, String, Vec<String>)> = Vec::new();
    for (ix, consumer) in consumers.iter().enumerate() {
        let (home, problem) = match place(&settled, consumer, &others) {
            Ok((home, filters)) => {
                others.push((home.clone(), consumer.name.clone(), filters));
                (home, None)
            }
            Err(why) => (String::new(), Some(why)),
        };
        checked.homes.push(home);
        if let Some(why) = problem {
            let why = format!("consumer {}: {why}", consumer.name);
            checked.problems.push((streams.len() + ix, why));
        }
    }
    checked
}

/// No two streams have the same name, or subjects in common.
fn check_beside(others: &[StreamConfig], config: &StreamConfig) -> Result<(), String> {
    let too_many = || error::TOO_MANY_SUBJECTS.description.into_owned();
    if others.iter().any(|other| other.name == config.name) {
        return Err("there is another stream of this name".to_owned());
    }
    let own = config.subjects.iter().map(String::as_str).filter(|subject| *subject != ">");
    let mut own = match config.subjects.iter().any(|subject| subject == ">") {
        true => PatternSet::of([">"]),
        false => PatternSet::of(own),
    }
    .map_err(|_| too_many())?;
    for other in others {
        for theirs in &other.subjects {
            match own.overlap(theirs) {
                Overlap::None => {}
                Overlap::With(subject) => {
                    let name = &other.name;
                    return Err(format!("{subject} overlaps with {theirs} of stream {name}"));
                }
                Overlap::TooMany => return Err(too_many()),
            }
        }
    }
    Ok(())
}

/// The stream of a consumer, and what it filters by. On a work queue each message is one consumer's.
fn place(
    streams: &[StreamConfig],
    consumer: &DeclaredConsumer,
    others: &[(String, String, Vec<String>)],
) -> Result<(String, Vec<String>), String> {
    let parsed: ConsumerConfig =
        serde_json::from_str(&consumer.config).map_err(|error| error.to_string())?;
    let filters: Vec<String> = parsed.filters().into_iter().map(str::to_owned).collect();
    let home = match consumer.stream.as_str() {
        "" => home_of(streams, &filters)?,
        name => name.to_owned(),
    };
    let stream = streams.iter().find(|stream| stream.name == home);
    let is_work_queue = stream.is_some_and(|stream| stream.retention == Retention::Workqueue);
    parsed.settle(is_work_queue).map_err(|error| error.description.into_owned())?;
    let siblings = others.iter().filter(|(stream, ..)| *stream == home);
    let mut own = PatternSet::of(filters.iter().map(String::as_str))
        .map_err(|_| error::TOO_MANY_SUBJECTS.description.into_owned())?;
    for (_, name, theirs) in siblings {
        if *name == consumer.name {
            return Err(format!("there is another consumer of this name in stream {home}"));
        }
        if !is_work_queue {
            continue;
        }
        let shared = "on a work queue each message is one consumer's, and";
        if filters.is_empty() || theirs.is_empty() {
            return Err(format!(
                "{shared} this one or {name} wants all: give both a filter_subject"
            ));
        }
        for filter in theirs {
            match own.overlap(filter) {
                Overlap::None => {}
                Overlap::With(mine) => {
                    return Err(format!("{shared} {mine} overlaps with {filter} of {name}"));
                }
                Overlap::TooMany => return Err(error::TOO_MANY_SUBJECTS.description.into_owned()),
            }
        }
    }
    drop(own);
    Ok((home, filters))
}

/// The one stream that has messages of these subjects.
fn home_of(streams: &[StreamConfig], filters: &[String]) -> Result<String, String> {
    let has = |stream: &&StreamConfig| {
        let stores = |filter: &String| {
            let filter = filter.as_bytes();
            stream.subjects.iter().any(|subject| nats::overlaps(subject.as_bytes(), filter))
        };
        filters.iter().all(stores)
    };
    let mut found = streams.iter().filter(has);
    match (found.next(), found.next()) {
        (Some(stream), None) => Ok(stream.name.clone()),
        (None, _) => Err(format!("no declared stream stores {}: say which stream", list(filters))),
        (Some(_), Some(_)) => {
            Err("several streams have messages for it: say which stream".to_owned())
        }
    }
}

fn list(filters: &[String]) -> String {
    if filters.is_empty() { "anything".to_owned() } else { filters.join(", ") }
}
