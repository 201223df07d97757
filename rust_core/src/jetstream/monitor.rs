//! Streams and their consumers for monitoring, as JSON in the words of nats-server's `/jsz`.

use serde_json::{Value, json};

use super::{consumers, streams, timestamp};
use crate::store::Store;
use crate::time::Now;

/// What to tell of a stream besides its state.
#[derive(Debug, Clone, Copy, Default)]
pub struct Detail {
    /// Its consumers.
    pub consumers: bool,
    /// Its configuration, and theirs.
    pub config: bool,
}

/// A stream as it is now; `None` if there is none of this name. Costs as much as it has consumers.
pub fn stream_detail(store: &Store, name: &str, detail: Detail, now: Now) -> Option<String> {
    let key = store.find_stream(name)?;
    let info = store.stream_info(key)?;
    let mut said = json!({
        "name": name, "created": timestamp(info.created_ms), "state": streams::state(&info),
    });
    if detail.config {
        said["config"] = serde_json::from_str(&info.config).unwrap_or(Value::Null);
    }
    if detail.consumers && info.consumers > 0 {
        let all = store.consumers(key).into_iter();
        let described = all.filter_map(|(_, consumer)| {
            let mut one = consumers::describe(store, name, consumer, now).ok()?;
            if !detail.config {
                one.remove("config");
            }
            Some(Value::Object(one))
        });
        said["consumer_detail"] = described.collect();
    }
    Some(said.to_string())
}
