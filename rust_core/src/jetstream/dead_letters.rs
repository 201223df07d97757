//! Dead letters of streams: the messages that become one, and the stream each goes to by its consumer's prefix.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::consumer_config::{Ack, ConsumerConfig};
use super::error::ApiError;
use super::priority;
use super::{JetStream, Served, StreamConfig};
use crate::consumer::MAX_TEXT;
use crate::front::{Call, Listeners};
use crate::nats;
use crate::store::{ConsumerKey, Grave, Store, StreamKey};
use crate::time::Now;

/// The option of a consumer that asks for dead letters.
const OPTION: &str = "mq9.dead_letter_prefix";
/// Most messages that are moved in one go, and most bytes but for the last of them.
const MOVED_AT_ONCE: usize = 256;
const MOVED_BYTES: u64 = 1 << 20;

/// Who makes a consumer: a connection, or the broker itself.
pub(super) type Creator<'a> = Option<(u64, &'a dyn Listeners)>;

/// What subjects of dead letters begin with.
pub(super) fn prefix(metadata: &BTreeMap<String, String>) -> Option<&str> {
    metadata.get(OPTION).map(String::as_str)
}

/// A consumer may ask for subjects of its users, and only if it acknowledges.
pub(super) fn check_option(metadata: &BTreeMap<String, String>, ack: Ack) -> Result<(), ApiError> {
    let Some(prefix) = prefix(metadata) else { return Ok(()) };
    let has_blank = prefix.contains(|c: char| c.is_whitespace() || c.is_control());
    if !nats::is_literal(prefix.as_bytes())
        || has_blank
        || prefix.starts_with('$')
        || prefix.len() > MAX_TEXT
    {
        return Err(refused(format!("{OPTION} must be what subjects begin with, such as mq.dlq")));
    }
    if ack == Ack::None {
        return Err(refused(format!("{OPTION} needs acknowledgements")));
    }
    Ok(())
}

fn refused(why: String) -> ApiError {
    ApiError { code: 400, err_code: 10012, description: why.into() }
}

pub(super) fn nowhere(subject: &str) -> String {
    format!("no stream has the subject {subject}")
}

/// The subjects that dead letters of a consumer may have.
fn subjects(served: &Served, config: &ConsumerConfig, prefix: &str) -> Vec<String> {
    let filters = config.filters();
    let own = served.config.subjects.iter().map(String::as_str);
    let of: Vec<&str> = if filters.is_empty() { own.collect() } else { filters };
    of.into_iter().map(|subject| format!("{prefix}.{subject}")).collect()
}

/// The stream of a store that has a subject; the one called `near` is looked at first.
pub fn stream_of_subject(store: &Store, subject: &str, near: &str) -> Option<StreamKey> {
    let has = |key: &StreamKey| {
        let config = store.stream_info(*key).and_then(|info| StreamConfig::stored(&info.config));
        let matches = |own: &String| nats::matches(own.as_bytes(), subject.as_bytes());
        config.is_some_and(|config| config.subjects.iter().any(matches))
    };
    let others = || store.streams().map(|(_, key)| key).find(has);
    store.find_stream(near).filter(has).or_else(others)
}

impl JetStream {
    /// The first subject of a consumer's dead letters for which there is no stream.
    fn without_stream(&self, served: &Served, config: &ConsumerConfig) -> Option<String> {
        let all = subjects(served, config, prefix(&config.metadata)?);
        let has = |subject: &String| {
            let mut own = self.served().flat_map(|served| &served.config.subjects);
            own.any(|own| nats::covers(own.as_bytes(), subject.as_bytes()))
        };
        all.into_iter().find(|subject| !has(subject))
    }

    /// Refuses a consumer whose dead letters would have no place, or one where its creator may not publish.
    pub(super) fn check_dead_letters(
        &self,
        served: &Served,
        config: &ConsumerConfig,
        by: Creator<'_>,
    ) -> Result<(), ApiError> {
        let Some(prefix) = prefix(&config.metadata) else { return Ok(()) };
        if let Some(subject) = self.without_stream(served, config) {
            return Err(refused(nowhere(&subject)));
        }
        let Some((cid, listeners)) = by else { return Ok(()) };
        let all = subjects(served, config, prefix);
        match all.iter().find(|subject| !listeners.may_publish_all(cid, subject.as_bytes())) {
            Some(subject) => Err(refused(format!("no permission to publish to {subject}"))),
            None => Ok(()),
        }
    }

    /// A declared consumer whose dead letters have no stream gets one. What is wrong with it, its creation says.
    pub(super) fn make_room_for_dead_letters(
        &mut self,
        store: &mut Store,
        stream: &str,
        request: &Value,
        now: Now,
    ) {
        let config = serde_json::from_value::<ConsumerConfig>(request["config"].clone());
        let Ok(config) = config else { return };
        if check_option(&config.metadata, config.ack_policy).is_err() {
            return;
        }
        let Some(prefix) = prefix(&config.metadata) else { return };
        let lacks = self.find(stream).and_then(|(_, served)| self.without_stream(served, &config));
        if lacks.is_some() {
            let name = prefix.replace('.', "_");
            let config = json!({"name": name, "subjects": [format!("{prefix}.>")]}).to_string();
            let payload = config.as_bytes();
            let call = Call { cid: 0, subject: b"", reply: b"", headers: b"", payload };
            let _ = self.create_stream(store, &name, &call, now);
        }
    }

    /// Where a message goes if its consumer gives it up; `None` if it is not to be a dead letter.
    pub(super) fn grave(&self, store: &Store, key: ConsumerKey, msg_id: u64) -> Option<Grave> {
        let prefix = store.consumer_policy(key)?.dead_letter_prefix.as_deref()?;
        let own = store.subject_of(key, msg_id)?;
        let subject = format!("{prefix}.{own}");
        let is_letter = own.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('.'));
        let served = self.stream_of(subject.as_bytes()).and_then(|ix| self.get(ix));
        let keeps_level = served.is_some_and(|to| priority::is_asked(&to.config.metadata));
        let to = match served {
            _ if is_letter => Err("it is a dead letter already".to_owned()),
            Some(served) => Ok(served.key),
            None => Err(nowhere(&subject)),
        };
        Some(Grave { to, subject, keeps_level })
    }

    /// Messages that were delivered as often as allowed become dead letters, some at a time. Says whether there are more.
    pub(super) fn move_exhausted(&self, store: &mut Store, now: Now) -> bool {
        let end = store.end().number().saturating_add(MOVED_BYTES);
        for _ in 0..MOVED_AT_ONCE {
            if store.end().number() >= end {
                return true;
            }
            let Some((key, msg_id)) = store.next_exhausted() else { return false };
            if let Some(grave) = self.grave(store, key, msg_id) {
                store.move_exhausted(key, msg_id, &grave, now);
            }
        }
        true
    }
}
