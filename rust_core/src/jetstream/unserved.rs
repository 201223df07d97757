//! Requests that are known and not served: refused, so that nobody waits for an answer in vain.

use serde::Deserialize;
use serde_json::{Value, json};

use super::JetStream;
use super::api::{Answer, Outcome, members};
use super::error::{self, ApiError, known};
use super::streams::parse;
use crate::store::Store;

const NO_SNAPSHOT: ApiError = known(500, 10064, "snapshot failed: it is not supported");
const NO_RESTORE: ApiError = known(500, 10062, "restore failed: it is not supported");
const NO_PAUSE: ApiError = known(400, 10012, "paused consumers are not supported");
const NO_RESET: ApiError = known(400, 10012, "resetting consumers is not supported");
const NO_GROUP: ApiError = known(400, 10025, "invalid JSON: consumer group not specified");
const UNKNOWN_GROUP: ApiError =
    known(400, 10160, "Provided priority group does not exist for this consumer");
/// When a consumer goes on that is not paused.
const NEVER: &str = "0001-01-01T00:00:00Z";

/// What such requests say, as far as it is looked at.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Unserved {
    deliver_subject: String,
    config: Option<Value>,
    pause_until: Option<String>,
    group: String,
}

/// The kind of answer to a request that is not served.
pub(super) fn kind(tokens: &[&str]) -> Option<&'static str> {
    Some(match *tokens {
        ["STREAM", "SNAPSHOT", _] => "stream_snapshot",
        ["STREAM", "RESTORE", _] => "stream_restore",
        ["STREAM", "PEER", "REMOVE", _] => "stream_remove_peer",
        ["STREAM", "LEADER", "STEPDOWN", _] => "stream_leader_stepdown",
        ["CONSUMER", "LEADER", "STEPDOWN", _, _] => "consumer_leader_stepdown",
        ["CONSUMER", "PAUSE", _, _] => "consumer_pause",
        ["CONSUMER", "RESET", _, _] => "consumer_reset",
        ["CONSUMER", "UNPIN", _, _] => "consumer_unpin",
        _ => return None,
    })
}

impl JetStream {
    /// Refuses what is known and not served; nothing for what nobody knows.
    pub(super) fn refuse(&self, store: &Store, tokens: &[&str], body: &[u8]) -> Option<Answer> {
        let mut answer = Answer::new(kind(tokens)?, self.why_not(store, tokens, body));
        answer.always = members(match *tokens {
            ["STREAM", "RESTORE", ..] => json!({"deliver_subject": ""}),
            ["CONSUMER", "PAUSE", ..] => json!({"paused": false, "pause_until": NEVER}),
            ["CONSUMER", "RESET", ..] => json!({"reset_seq": 0}),
            _ => json!({}),
        });
        Some(answer)
    }

    fn why_not(&self, store: &Store, tokens: &[&str], body: &[u8]) -> Outcome {
        let said = || parse::<Unserved>(body);
        match *tokens {
            ["STREAM", "SNAPSHOT", _] if body.trim_ascii().is_empty() => Err(error::BAD_REQUEST),
            ["STREAM", "SNAPSHOT", stream] => {
                self.find(stream).ok_or(error::STREAM_NOT_FOUND)?;
                let nowhere = said()?.deliver_subject.is_empty();
                Err(if nowhere { error::BAD_REQUEST } else { NO_SNAPSHOT })
            }
            ["STREAM", "RESTORE", _] => {
                let nothing = said()?.config.is_none();
                Err(if nothing { error::BAD_REQUEST } else { NO_RESTORE })
            }
            ["CONSUMER", "PAUSE", stream, consumer] => {
                self.find_consumer(store, stream, consumer)?;
                // Whoever asks for no pause has none.
                let until = parse::<Unserved>(body).unwrap_or_default().pause_until;
                match until.filter(|until| !until.starts_with("0001-01-01T00:00:00")) {
                    Some(_) => Err(NO_PAUSE),
                    None => Ok(members(json!({}))),
                }
            }
            ["CONSUMER", "RESET", stream, consumer] => {
                self.find_consumer(store, stream, consumer)?;
                Err(NO_RESET)
            }
            ["CONSUMER", "UNPIN", stream, consumer] => {
                if said()?.group.is_empty() {
                    return Err(NO_GROUP);
                }
                self.find_consumer(store, stream, consumer)?;
                Err(UNKNOWN_GROUP)
            }
            _ => Err(error::NO_CLUSTER),
        }
    }
}
