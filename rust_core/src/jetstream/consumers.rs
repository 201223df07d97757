//! Requests about consumers.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::api::{Answer, Outcome, members};
use super::consumer_config::{Ack, ConsumerConfig, Deliver};
use super::dead_letters::Creator;
use super::error::{self, ApiError};
use super::stream_config::Retention;
use super::streams::{DETAILS, NAMES, Page, page, parse};
use super::{JetStream, Served, duration, timestamp};
use crate::consumer::Position;
use crate::nats::{Overlap, PatternSet};
use crate::store::{ConsumerKey, NewConsumer, Store};
use crate::time::Now;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CreateRequest {
    stream_name: String,
    config: ConsumerConfig,
    action: String,
    /// Nothing that was asked for may be changed.
    pedantic: bool,
}

/// Which of the three forms a request to create a consumer has.
#[derive(Debug, Clone, Copy)]
pub(super) enum Form<'a> {
    /// The server makes up a name.
    Nameless,
    /// A name, and maybe a filter.
    Named(&'a str, Option<&'a str>),
    /// A durable name.
    Durable(&'a str),
}

const MISMATCH: ApiError =
    error::known(400, 10017, "consumer name in subject does not match durable name in request");
const NO_DURABLE: ApiError =
    error::known(400, 10018, "consumer expected to be durable but a durable name was not set");
const IS_DURABLE: ApiError = error::known(
    400,
    10020,
    "consumer expected to be ephemeral but a durable name was set in request",
);
const FILTER_MISMATCH: ApiError = error::known(
    400,
    10131,
    "Consumer create request did not match filtered subject from create subject",
);
const PATH: ApiError = error::known(400, 10127, "Consumer name can not contain path separators");
const BAD_NAME: ApiError =
    error::known(500, 10052, "consumer name can not contain '.', '*', '>', '\\', '/'");

impl Form<'_> {
    /// Checks that subject and body say the same.
    fn check(self, config: &ConsumerConfig) -> Result<(), ApiError> {
        match self {
            Form::Nameless if !config.durable_name.is_empty() => return Err(IS_DURABLE),
            Form::Nameless => {}
            Form::Durable(_) if config.durable_name.is_empty() => return Err(NO_DURABLE),
            Form::Durable(name) if config.durable_name != name => return Err(MISMATCH),
            Form::Durable(_) => {}
            Form::Named(name, filter) => {
                if !config.durable_name.is_empty() && config.durable_name != name {
                    return Err(MISMATCH);
                }
                if filter.is_some_and(|filter| filter != config.filter_subject) {
                    return Err(FILTER_MISMATCH);
                }
            }
        }
        if !config.durable_name.is_empty()
            && !config.name.is_empty()
            && config.name != config.durable_name
        {
            return Err(MISMATCH);
        }
        Ok(())
    }
}

fn check_name(name: &str) -> Result<(), ApiError> {
    if name.contains(['/', '\\']) {
        return Err(PATH);
    }
    if name.len() > 255 || name.contains(['.', '*', '>', ' ', '\t', '\r', '\n']) {
        return Err(BAD_NAME);
    }
    Ok(())
}

impl JetStream {
    pub(super) fn create_consumer(
        &mut self,
        store: &mut Store,
        stream: &str,
        form: Form<'_>,
        body: &[u8],
        by: Creator<'_>,
        now: Now,
    ) -> Answer {
        let outcome = self.try_create_consumer(store, stream, form, body, by, now);
        Answer::new("consumer_create", outcome)
    }

    fn try_create_consumer(
        &mut self,
        store: &mut Store,
        stream: &str,
        form: Form<'_>,
        body: &[u8],
        by: Creator<'_>,
        now: Now,
    ) -> Outcome {
        let request: CreateRequest = parse(body)?;
        if request.stream_name != stream {
            return Err(error::STREAM_MISMATCH);
        }
        form.check(&request.config)?;
        let Some((_, served)) = self.find(stream) else { return Err(error::STREAM_NOT_FOUND) };
        let (key, retention) = (served.key, served.config.retention);
        let most = served.config.max_consumers;
        let limits = served.config.consumer_limits;
        if request.pedantic {
            request.config.check_pedantic(limits)?;
        }
        let mut config = limits.apply(request.config)?;
        // nats-server compares what was asked for, and keeps another threshold where none was.
        let is_never_equal = config.durable_name.is_empty() && config.inactive_threshold <= 0;
        config = config.settle(retention == Retention::Workqueue)?;
        if let Form::Named(name, _) | Form::Durable(name) = form {
            config.name = name.to_owned();
        }
        if config.name.is_empty() && !config.durable_name.is_empty() {
            config.name = config.durable_name.clone();
        }
        check_name(&config.name)?;
        let there = match config.name.as_str() {
            "" => None,
            name => store.find_consumer(key, name),
        };
        if let Some(there) = there {
            let info = store.consumer_info(there).ok_or(error::CONSUMER_NOT_FOUND)?;
            let old = ConsumerConfig::stored(&info.config).unwrap_or_default();
            if request.action == "create" && (is_never_equal || old != config) {
                return Err(ApiError::consumer(400, 10148, "consumer already exists"));
            }
            if old != config {
                check_update(&old, &config)?;
                check_work_queue(store, served, &config)?;
                self.check_dead_letters(served, &config, by)?;
                let new = new_consumer(&config.name, &config, 0, Vec::new());
                store.set_consumer(key, &new.borrowed(), now)?;
            }
            return describe(store, stream, there, now);
        }
        if request.action == "update" {
            return Err(ApiError::consumer(400, 10149, "consumer does not exist"));
        }
        let there = store.stream_info(key).map_or(0, |info| info.consumers);
        if (most > 0 && there as i64 >= most) || there >= store.max_groups() {
            return Err(ApiError::consumer(400, 10026, "maximum consumers limit reached"));
        }
        check_work_queue(store, served, &config)?;
        self.check_dead_letters(served, &config, by)?;
        let name =
            if config.name.is_empty() { self.made_up_name(now) } else { config.name.clone() };
        let (next, early) = start(store, key, &config)?;
        let new = new_consumer(&name, &config, next, early);
        let made = store.set_consumer(key, &new.borrowed(), now)?;
        self.advise_consumer(stream, &name, "create", "CREATED", now);
        describe(store, stream, made, now)
    }

    /// A name that nobody has: eight letters and digits.
    fn made_up_name(&mut self, now: Now) -> String {
        self.ids += 1;
        let mut mixed =
            (now.wall_ms << 20) ^ now.mono_ms ^ self.ids.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut name = String::new();
        for _ in 0..8 {
            mixed ^= mixed >> 29;
            mixed = mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
            name.push(char::from(digits[(mixed >> 33) as usize % digits.len()]));
        }
        name
    }

    pub(super) fn consumer_info(
        &self,
        store: &Store,
        stream: &str,
        name: &str,
        now: Now,
    ) -> Answer {
        let outcome = self
            .find_consumer(store, stream, name)
            .and_then(|key| describe(store, stream, key, now));
        Answer::new("consumer_info", outcome)
    }

    pub(super) fn delete_consumer(
        &mut self,
        store: &mut Store,
        stream: &str,
        name: &str,
        now: Now,
    ) -> Answer {
        let outcome = self.find_consumer(store, stream, name).and_then(|key| {
            store.remove_consumer(key, false, now)?;
            Ok(members(json!({"success": true})))
        });
        self.tell_events(store, now);
        Answer::new("consumer_delete", outcome)
    }

    pub(super) fn consumer_names(&self, store: &Store, stream: &str, body: &[u8]) -> Answer {
        list_answer("consumer_names", self.try_list(store, stream, body, None))
    }

    pub(super) fn consumer_list(
        &self,
        store: &Store,
        stream: &str,
        body: &[u8],
        now: Now,
    ) -> Answer {
        list_answer("consumer_list", self.try_list(store, stream, body, Some(now)))
    }

    fn try_list(&self, store: &Store, stream: &str, body: &[u8], details: Option<Now>) -> Outcome {
        let asked: Page = parse(body)?;
        let Some((_, served)) = self.find(stream) else { return Err(error::STREAM_NOT_FOUND) };
        let mut all = store.consumers(served.key);
        all.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let limit = if details.is_some() { DETAILS } else { NAMES };
        let (found, mut said) = page(all, asked.offset, limit);
        let list = match details {
            None => found.iter().map(|(name, _)| Value::String(name.to_string())).collect(),
            Some(now) => found
                .iter()
                .map(|(_, key)| describe(store, stream, *key, now).map(Value::Object))
                .collect::<Result<Vec<_>, _>>()?,
        };
        said.insert("consumers".to_owned(), Value::Array(list));
        Ok(said)
    }

    pub(super) fn find_consumer(
        &self,
        store: &Store,
        stream: &str,
        name: &str,
    ) -> Result<ConsumerKey, ApiError> {
        let Some((_, served)) = self.find(stream) else { return Err(error::STREAM_NOT_FOUND) };
        store.find_consumer(served.key, name).ok_or(error::CONSUMER_NOT_FOUND)
    }
}

/// A refusal has an empty list as well.
fn list_answer(kind: &'static str, outcome: Outcome) -> Answer {
    let mut answer = Answer::new(kind, outcome);
    if answer.outcome.is_err() {
        answer.always = members(json!({"total": 0, "offset": 0, "limit": 0, "consumers": []}));
    }
    answer
}

/// What cannot change is as it was.
fn check_update(old: &ConsumerConfig, new: &ConsumerConfig) -> Result<(), ApiError> {
    let kept = [
        (old.deliver_policy == new.deliver_policy, "deliver policy can not be updated"),
        (old.opt_start_seq == new.opt_start_seq, "start sequence can not be updated"),
        (old.opt_start_time == new.opt_start_time, "start time can not be updated"),
        (old.ack_policy == new.ack_policy, "ack policy can not be updated"),
        (old.max_waiting == new.max_waiting, "max waiting can not be updated"),
    ];
    match kept.into_iter().find(|(same, _)| !same) {
        Some((_, why)) => Err(ApiError::consumer(500, 10012, why)),
        None => Ok(()),
    }
}

/// On a work queue each message is one consumer's.
fn check_work_queue(
    store: &Store,
    served: &Served,
    config: &ConsumerConfig,
) -> Result<(), ApiError> {
    if served.config.retention != Retention::Workqueue {
        return Ok(());
    }
    if config.ack_policy != Ack::Explicit {
        return Err(ApiError::consumer(400, 10098, "workqueue stream requires explicit ack"));
    }
    let own = config.filters();
    let own_set = PatternSet::of(own.iter().copied());
    let mut own_set = own_set.map_err(|_| error::TOO_MANY_SUBJECTS)?;
    for (name, other) in store.consumers(served.key) {
        if *name == *config.name {
            continue;
        }
        if own.is_empty() {
            let why = "multiple non-filtered consumers not allowed on workqueue stream";
            return Err(ApiError::consumer(400, 10099, why));
        }
        let Some(policy) = store.consumer_policy(other) else { continue };
        let not_unique =
            Err(ApiError::consumer(400, 10100, "filtered consumer not unique on workqueue stream"));
        if policy.filters.is_empty() {
            return not_unique;
        }
        for filter in &policy.filters {
            match own_set.overlap(filter) {
                Overlap::None => {}
                Overlap::With(_) => return not_unique,
                Overlap::TooMany => return Err(error::TOO_MANY_SUBJECTS),
            }
        }
    }
    if config.deliver_policy != Deliver::All {
        let why = "consumer must be deliver all on workqueue stream";
        return Err(ApiError::consumer(400, 10101, why));
    }
    Ok(())
}

/// Where a new consumer begins: the first message it may be given, and those that come before it.
fn start(
    store: &Store,
    key: crate::store::StreamKey,
    config: &ConsumerConfig,
) -> Result<(u64, Vec<u64>), ApiError> {
    let info = store.stream_info(key).ok_or(error::STREAM_NOT_FOUND)?;
    let (first, end) = (info.first_seq.saturating_sub(1), info.last_seq);
    let filters = config.filters();
    Ok(match config.deliver_policy {
        Deliver::All => (first.min(end), Vec::new()),
        Deliver::New => (end, Vec::new()),
        Deliver::Last => {
            let last = match filters.as_slice() {
                [] => store.last_of_subject(key, ">"),
                some => some.iter().filter_map(|filter| store.last_of_subject(key, filter)).max(),
            };
            (last.unwrap_or(end), Vec::new())
        }
        Deliver::ByStartSequence => {
            let asked = u64::try_from(config.opt_start_seq).unwrap_or(1).saturating_sub(1);
            (asked.max(first.min(end)), Vec::new())
        }
        Deliver::ByStartTime => {
            let time = config.opt_start_time.as_deref().and_then(duration::parse_time_ms);
            let time = time.ok_or(error::BAD_REQUEST)?;
            (store.first_since(key, time).unwrap_or(end), Vec::new())
        }
        Deliver::LastPerSubject => (end, store.last_of_each(key, &filters)),
    })
}

struct Owned<'a> {
    name: &'a str,
    config: ConsumerConfig,
    text: String,
    next: u64,
    early: Vec<u64>,
}

fn new_consumer<'a>(
    name: &'a str,
    config: &ConsumerConfig,
    next: u64,
    early: Vec<u64>,
) -> Owned<'a> {
    Owned { name, config: config.clone(), text: config.text(), next, early }
}

impl Owned<'_> {
    fn borrowed(&self) -> NewConsumer<'_> {
        NewConsumer {
            name: self.name,
            policy: self.config.policy(),
            config: &self.text,
            next: self.next,
            early: self.early.clone(),
        }
    }
}

/// A consumer as it is now, in JetStream's words.
pub(super) fn describe(store: &Store, stream: &str, key: ConsumerKey, now: Now) -> Outcome {
    let info = store.consumer_info(key).ok_or(error::CONSUMER_NOT_FOUND)?;
    let config: Value = serde_json::from_str(&info.config).unwrap_or(Value::Null);
    let position = |at: Position, last_ms: u64| {
        let mut said = json!({"consumer_seq": at.consumer, "stream_seq": at.stream});
        if last_ms > 0 {
            said["last_active"] = timestamp(last_ms).into();
        }
        said
    };
    let said: Map<String, Value> = members(json!({
        "stream_name": stream, "name": &*info.name, "created": timestamp(info.created_ms),
        "config": config,
        "delivered": position(info.delivered, info.delivered_ms),
        "ack_floor": position(info.floor, info.acked_ms),
        "num_ack_pending": info.ack_pending, "num_redelivered": info.redelivered,
        "num_waiting": info.waiting, "num_pending": info.pending,
        "ts": timestamp(now.wall_ms),
    }));
    Ok(said)
}
