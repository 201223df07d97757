//! Requests to purge a stream. One that removes many messages goes on between the requests of others.

use serde::Deserialize;
use serde_json::json;

use super::JetStream;
use super::api::{Answer, members};
use super::error::{self, ApiError};
use super::streams::parse;
use crate::front::Call;
use crate::store::{Purging, Store, StreamPurge};
use crate::time::Now;

/// Most purges that go on at once.
const UNDER_WAY: usize = 1024;
/// Steps of purges in one go.
const STEPS: usize = 4;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PurgeRequest {
    filter: String,
    seq: u64,
    keep: u64,
}

/// A purge that goes on, and who waits for its end.
#[derive(Debug)]
pub(super) struct PurgeUnderWay {
    purging: Purging,
    cid: u64,
    reply: Box<[u8]>,
}

fn answer(outcome: Result<(), ApiError>, purged: u64) -> Answer {
    let said = outcome.map(|()| members(json!({"success": true})));
    let always = members(json!({"purged": purged}));
    Answer { always, ..Answer::new("stream_purge", said) }
}

impl JetStream {
    /// Purges a stream, or begins to: then the answer comes by and by.
    pub(super) fn purge_stream(
        &mut self,
        store: &mut Store,
        stream: &str,
        call: &Call<'_>,
        now: Now,
    ) -> Option<Answer> {
        let mut purging = match self.begin_purge(store, stream, call.payload) {
            Ok(purging) => purging,
            Err(error) => return Some(answer(Err(error), 0)),
        };
        match store.purge_some(&mut purging, now) {
            Ok(false) => Some(answer(Ok(()), purging.purged)),
            Err(error) => Some(answer(Err(error.into()), purging.purged)),
            Ok(true) => {
                let (cid, reply) = (call.cid, call.reply.into());
                self.purges.push_back(PurgeUnderWay { purging, cid, reply });
                None
            }
        }
    }

    fn begin_purge(&self, store: &Store, stream: &str, body: &[u8]) -> Result<Purging, ApiError> {
        let Some((_, served)) = self.find(stream) else { return Err(error::STREAM_NOT_FOUND) };
        let request: PurgeRequest = parse(body)?;
        if request.seq > 0 && request.keep > 0 {
            return Err(error::BAD_REQUEST);
        }
        if served.config.deny_purge {
            return Err(error::PURGE_DENIED);
        }
        if self.purges.len() >= UNDER_WAY {
            return Err(ApiError::store("too many purges are under way"));
        }
        let filter = Some(request.filter.as_str()).filter(|filter| !filter.is_empty());
        let before = (request.seq > 0).then(|| request.seq - 1);
        let purge = StreamPurge { filter, before, keep: request.keep };
        Ok(store.begin_purge(served.key, purge)?)
    }

    /// Goes on with purges, in turns. Says whether there is more to do at once.
    pub(super) fn go_on_purging(&mut self, store: &mut Store, now: Now) -> bool {
        for _ in 0..STEPS {
            let Some(mut purge) = self.purges.pop_front() else { return false };
            let outcome = match store.purge_some(&mut purge.purging, now) {
                Ok(true) => {
                    self.purges.push_back(purge);
                    continue;
                }
                Ok(false) => Ok(()),
                Err(error) => Err(error.into()),
            };
            let answer = answer(outcome, purge.purging.purged);
            self.count(&answer);
            self.answer_to(purge.cid, &purge.reply, store.end(), true, answer.text());
        }
        !self.purges.is_empty()
    }
}
