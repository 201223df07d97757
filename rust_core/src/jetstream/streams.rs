//! Requests about streams and their messages.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::api::{Answer, Outcome, members};
use super::error::{self, ApiError};
use super::{ConsumerConfig, JetStream, StreamConfig, timestamp};
use crate::front::Call;
use crate::mailbox::Policy;
use crate::nats::{self, Overlap, PatternSet};
use crate::store::{NewStream, Store, StreamInfo, StreamKey};
use crate::time::Now;

/// Most names in a reply.
pub(super) const NAMES: usize = 1024;
/// Most descriptions in a reply.
pub(super) const DETAILS: usize = 256;
/// Most subjects in a reply.
const SUBJECTS: usize = 100_000;

/// Which part of a list is asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Page {
    pub offset: i64,
    pub subject: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct InfoRequest {
    deleted_details: bool,
    subjects_filter: String,
    offset: i64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DeleteRequest {
    seq: u64,
}

/// The body of a request; an empty one says nothing.
pub(super) fn parse<T: DeserializeOwned + Default>(body: &[u8]) -> Result<T, ApiError> {
    match body.trim_ascii() {
        b"" => Ok(T::default()),
        text => serde_json::from_slice(text).map_err(|error| ApiError::json(&error)),
    }
}

/// A part of a list, with the members that say which.
pub(super) fn page<T>(mut all: Vec<T>, offset: i64, limit: usize) -> (Vec<T>, Map<String, Value>) {
    let total = all.len();
    let offset = usize::try_from(offset).unwrap_or(0).min(total);
    all.drain(..offset);
    all.truncate(limit);
    (all, members(json!({"total": total, "offset": offset, "limit": limit})))
}

impl JetStream {
    pub(super) fn account(&self, store: &Store) -> Answer {
        let (mut memory, mut file, mut consumers) = (0, 0, 0);
        for served in self.served() {
            let Some(info) = store.stream_info(served.key) else { continue };
            consumers += info.consumers;
            match served.config.storage {
                super::stream_config::Storage::Memory => memory += info.bytes,
                super::stream_config::Storage::File => file += info.bytes,
            }
        }
        let said = json!({
            "memory": memory, "storage": file, "reserved_memory": 0, "reserved_storage": 0,
            "streams": self.by_name.len(), "consumers": consumers,
            "limits": {
                "max_memory": -1, "max_storage": -1, "max_streams": -1, "max_consumers": -1,
                "max_ack_pending": -1, "memory_max_stream_bytes": -1,
                "storage_max_stream_bytes": -1, "max_bytes_required": false,
            },
            "api": {"level": super::api::LEVEL, "total": self.requests, "errors": self.errors},
        });
        Answer::new("account_info", Ok(members(said)))
    }

    pub(super) fn create_stream(
        &mut self,
        store: &mut Store,
        stream: &str,
        call: &Call<'_>,
        now: Now,
    ) -> Answer {
        Answer::new("stream_create", self.try_create(store, stream, call, now))
    }

    fn try_create(
        &mut self,
        store: &mut Store,
        stream: &str,
        call: &Call<'_>,
        now: Now,
    ) -> Outcome {
        let config = StreamConfig::parse(call.payload)?;
        if config.name != stream {
            return Err(error::STREAM_MISMATCH);
        }
        let config = config.settle()?;
        if let Some((_, served)) = self.find(stream) {
            if served.config != config {
                return Err(error::STREAM_IN_USE);
            }
            return describe(store, served.key, &served.config, now, true);
        }
        self.check_overlap(&config)?;
        let owner = self.pulls.user(call.cid).map(Into::into);
        let (text, policy) = (config.text(), Policy { owner, ..config.policy() });
        let new = NewStream { name: stream, config: &text, policy };
        let key = store.create_stream(&new, now)?;
        let described = describe(store, key, &config, now, true);
        self.add(key, config);
        self.advise_stream(stream, "create", "CREATED", now);
        described
    }

    fn check_overlap(&self, config: &StreamConfig) -> Result<(), ApiError> {
        // A stream may say `>` beside others.
        let all = config.subjects.iter().map(String::as_str);
        let own = match all.clone().find(|subject| *subject == ">") {
            Some(everything) => PatternSet::of([everything]),
            None => PatternSet::of(all),
        };
        let mut own = own.map_err(|_| error::TOO_MANY_SUBJECTS)?;
        let others = self.served().filter(|served| served.config.name != config.name);
        for theirs in others.flat_map(|served| &served.config.subjects) {
            match own.overlap(theirs) {
                Overlap::None => {}
                Overlap::With(_) => return Err(error::SUBJECT_OVERLAP),
                Overlap::TooMany => return Err(error::TOO_MANY_SUBJECTS),
            }
        }
        Ok(())
    }

    pub(super) fn update_stream(
        &mut self,
        store: &mut Store,
        stream: &str,
        body: &[u8],
        now: Now,
    ) -> Answer {
        Answer::new("stream_update", self.try_update(store, stream, body, now))
    }

    fn try_update(&mut self, store: &mut Store, stream: &str, body: &[u8], now: Now) -> Outcome {
        let config = StreamConfig::parse(body)?;
        if config.name != stream {
            return Err(error::STREAM_MISMATCH);
        }
        if config.sealed {
            let why = "stream configuration update can not seal a stream: sealing is not supported";
            return Err(ApiError::stream_config(why));
        }
        let config = config.settle()?;
        let Some((ix, served)) = self.find(stream) else { return Err(error::STREAM_NOT_FOUND) };
        let (key, old) = (served.key, &served.config);
        let refuse = |why: &'static str| Err(ApiError::stream_config(why));
        if old.storage != config.storage {
            return refuse("stream configuration update can not change storage type");
        }
        if old.retention != config.retention {
            return refuse("stream configuration update can not change retention policy");
        }
        if old.max_consumers != config.max_consumers {
            return refuse("stream configuration update can not change MaxConsumers");
        }
        if old.deny_delete && !config.deny_delete {
            return refuse("stream configuration update can not cancel deny message deletes");
        }
        if old.deny_purge && !config.deny_purge {
            return refuse("stream configuration update can not cancel deny purge");
        }
        let limits = config.consumer_limits;
        let exceeding = store.consumers(key).into_iter().filter(|(_, consumer)| {
            let config = store.consumer_info(*consumer).map(|info| info.config);
            let config = config.and_then(|config| ConsumerConfig::stored(&config));
            config.is_some_and(|config| limits.are_exceeded(&config))
        });
        let exceeding: Vec<String> = exceeding.map(|(name, _)| name.to_string()).collect();
        if !exceeding.is_empty() {
            let names = exceeding.join(", ");
            let description = format!("change to limits violates consumers: {names}").into();
            return Err(ApiError { code: 500, err_code: 10069, description });
        }
        self.check_overlap(&config)?;
        store.update_stream(key, &config.text(), config.policy(), now)?;
        let described = describe(store, key, &config, now, false);
        self.change(ix, config);
        self.advise_stream(stream, "modify", "UPDATED", now);
        described
    }

    pub(super) fn stream_info(&self, store: &Store, stream: &str, body: &[u8], now: Now) -> Answer {
        let mut always = members(json!({"total": 0, "offset": 0, "limit": 0}));
        let outcome = self.try_info(store, stream, body, &mut always, now);
        Answer { always, ..Answer::new("stream_info", outcome) }
    }

    fn try_info(
        &self,
        store: &Store,
        stream: &str,
        body: &[u8],
        always: &mut Map<String, Value>,
        now: Now,
    ) -> Outcome {
        let Some((_, served)) = self.find(stream) else { return Err(error::STREAM_NOT_FOUND) };
        let request: InfoRequest = parse(body)?;
        let mut said = describe(store, served.key, &served.config, now, false)?;
        let Some(Value::Object(state)) = said.get_mut("state") else { return Ok(said) };
        if request.deleted_details {
            let gaps = store.stream_gaps(served.key, SUBJECTS);
            if !gaps.is_empty() {
                state.insert("deleted".to_owned(), json!(gaps));
            }
        }
        if !request.subjects_filter.is_empty() {
            let subjects = store.stream_subjects(served.key, &request.subjects_filter);
            let (subjects, part) = page(subjects, request.offset, SUBJECTS);
            always.extend(part);
            let subjects = subjects.iter().map(|(name, count)| (name.to_string(), json!(count)));
            let subjects: Map<String, Value> = subjects.collect();
            if !subjects.is_empty() {
                state.insert("subjects".to_owned(), Value::Object(subjects));
            }
        }
        Ok(said)
    }

    pub(super) fn delete_stream(&mut self, store: &mut Store, stream: &str, now: Now) -> Answer {
        let outcome = match self.find(stream).map(|(ix, served)| (ix, served.key)) {
            None => Err(error::STREAM_NOT_FOUND),
            Some((ix, key)) => self.end_stream(store, key, now).map(|()| {
                self.remove(ix);
                self.advise_stream(stream, "delete", "DELETED", now);
                members(json!({"success": true}))
            }),
        };
        Answer::new("stream_delete", outcome)
    }

    fn end_stream(&mut self, store: &mut Store, key: StreamKey, now: Now) -> Result<(), ApiError> {
        let consumers = store.consumers(key);
        store.remove_stream(key, now)?;
        for (_, consumer) in consumers {
            self.end_pulls(consumer, store.end());
        }
        Ok(())
    }

    /// The names of streams that have messages of a subject, or all, sorted.
    fn named(&self, subject: &str) -> Vec<&super::Served> {
        let has = |served: &&super::Served| {
            let own = &served.config.subjects;
            subject.is_empty()
                || own.iter().any(|own| nats::overlaps(own.as_bytes(), subject.as_bytes()))
        };
        let mut found: Vec<_> = self.served().filter(has).collect();
        found.sort_unstable_by(|a, b| a.config.name.cmp(&b.config.name));
        found
    }

    pub(super) fn stream_names(&self, body: &[u8]) -> Answer {
        let outcome = parse::<Page>(body).map(|asked| {
            let (found, mut said) = page(self.named(&asked.subject), asked.offset, NAMES);
            let names: Vec<&str> = found.iter().map(|served| &*served.config.name).collect();
            let names = if names.is_empty() { Value::Null } else { json!(names) };
            said.insert("streams".to_owned(), names);
            said
        });
        Answer::new("stream_names", outcome)
    }

    pub(super) fn stream_list(&self, store: &Store, body: &[u8], now: Now) -> Answer {
        let outcome = parse::<Page>(body).and_then(|asked| {
            let (found, mut said) = page(self.named(&asked.subject), asked.offset, DETAILS);
            let described =
                found.iter().map(|served| describe(store, served.key, &served.config, now, false));
            let described = described.collect::<Result<Vec<_>, _>>()?;
            said.insert("streams".to_owned(), json!(described));
            Ok(said)
        });
        Answer::new("stream_list", outcome)
    }

    pub(super) fn delete_message(
        &self,
        store: &mut Store,
        stream: &str,
        body: &[u8],
        now: Now,
    ) -> Answer {
        Answer::new("stream_msg_delete", self.try_delete(store, stream, body, now))
    }

    fn try_delete(&self, store: &mut Store, stream: &str, body: &[u8], now: Now) -> Outcome {
        let Some((_, served)) = self.find(stream) else { return Err(error::STREAM_NOT_FOUND) };
        let DeleteRequest { seq } = parse(body)?;
        if body.is_empty() {
            return Err(error::BAD_REQUEST);
        }
        if served.config.deny_delete {
            return Err(error::DELETE_DENIED);
        }
        let msg_id = seq.checked_sub(1);
        let removed = match msg_id {
            Some(msg_id) => store.remove_from_stream(served.key, msg_id, now)?,
            None => false,
        };
        if !removed {
            let description = format!("sequence {seq} not found").into();
            return Err(ApiError { code: 400, err_code: 10043, description });
        }
        Ok(members(json!({"success": true})))
    }
}

/// A stream as it is now, in JetStream's words.
fn describe(
    store: &Store,
    key: StreamKey,
    config: &StreamConfig,
    now: Now,
    created: bool,
) -> Outcome {
    let info = store.stream_info(key).ok_or(error::STREAM_NOT_FOUND)?;
    let mut said = members(json!({
        "config": config,
        "created": timestamp(info.created_ms),
        "state": state(&info),
        "ts": timestamp(now.wall_ms),
    }));
    if created {
        said.insert("did_create".to_owned(), Value::Bool(true));
    }
    Ok(said)
}

/// What a stream holds, in JetStream's words.
pub(super) fn state(info: &StreamInfo) -> Map<String, Value> {
    let mut state = members(json!({
        "messages": info.messages, "bytes": info.bytes,
        "first_seq": info.first_seq, "first_ts": timestamp(info.first_ms),
        "last_seq": info.last_seq, "last_ts": timestamp(info.last_ms),
        "consumer_count": info.consumers,
    }));
    if info.subjects > 0 {
        state.insert("num_subjects".to_owned(), info.subjects.into());
    }
    if info.delayed > 0 {
        state.insert("num_delayed".to_owned(), info.delayed.into());
    }
    if info.messages > 0 && info.deleted() > 0 {
        state.insert("num_deleted".to_owned(), info.deleted().into());
    }
    state
}
