//! Advisories to everybody who listens: streams and consumers come and go, messages are given up.

use serde_json::{Value, json};

use super::{Announcement, JetStream, timestamp};
use crate::front::Call;
use crate::store::{Fate, Store, StreamEvent};
use crate::time::Now;

impl JetStream {
    /// A stream was created, changed or deleted.
    pub(super) fn advise_stream(&mut self, stream: &str, action: &str, event: &str, now: Now) {
        let subject = format!("$JS.EVENT.ADVISORY.STREAM.{event}.{stream}");
        let said = json!({"stream": stream, "action": action});
        self.advise(subject, "stream_action", said, now);
    }

    /// A consumer was created or deleted.
    pub(super) fn advise_consumer(
        &mut self,
        stream: &str,
        consumer: &str,
        action: &str,
        event: &str,
        now: Now,
    ) {
        let subject = format!("$JS.EVENT.ADVISORY.CONSUMER.{event}.{stream}.{consumer}");
        let said = json!({"stream": stream, "consumer": consumer, "action": action});
        self.advise(subject, "consumer_action", said, now);
    }

    /// Tells what has happened to consumers in the store.
    pub(super) fn tell_events(&mut self, store: &mut Store, now: Now) {
        while let Some(event) = store.next_stream_event() {
            let (name, kind, about, reason) = match event {
                StreamEvent::ConsumerGone { key, stream, consumer, .. } => {
                    self.end_pulls(key, store.end());
                    self.advise_consumer(&stream, &consumer, "delete", "DELETED", now);
                    continue;
                }
                StreamEvent::MaxDeliveries(about) => ("MAX_DELIVERIES", "max_deliver", about, None),
                StreamEvent::Terminated(about, reason) => {
                    ("MSG_TERMINATED", "terminated", about, Some(reason))
                }
                StreamEvent::Returned(about) => ("MSG_NAKED", "nak", about, None),
            };
            let subject =
                format!("$JS.EVENT.ADVISORY.CONSUMER.{name}.{}.{}", about.stream, about.consumer);
            let mut said = json!({
                "stream": &*about.stream, "consumer": &*about.consumer,
                "stream_seq": about.stream_seq, "deliveries": about.deliveries,
            });
            if kind != "max_deliver" {
                said["consumer_seq"] = about.consumer_seq.into();
            }
            match &about.fate {
                Fate::Plain => {}
                Fate::Moved(subject) => said["dead_letter"] = (&**subject).into(),
                Fate::Kept(why) => said["dead_letter_error"] = (&**why).into(),
            }
            if let Some(reason) = reason.filter(|reason| !reason.is_empty()) {
                said["reason"] = reason.into();
            }
            self.advise(subject, kind, said, now);
        }
    }

    /// Stores what streams want of what everybody is told next.
    pub(super) fn store_advisories(&mut self, store: &mut Store, now: Now) {
        for told in std::mem::take(&mut self.advisories) {
            let subject = told.subject.as_bytes();
            if let Some(ix) = self.stream_of(subject) {
                let (reply, headers) = (&b""[..], &b""[..]);
                let call = Call { cid: 0, subject, reply, headers, payload: &told.payload };
                self.publish(store, ix, &call, now);
            }
            self.announcements.push_back(told);
        }
    }

    fn advise(&mut self, subject: String, kind: &str, mut said: Value, now: Now) {
        self.ids += 1;
        if let Value::Object(members) = &mut said {
            let kind = format!("io.nats.jetstream.advisory.v1.{kind}");
            members.insert("type".to_owned(), kind.into());
            members.insert("id".to_owned(), format!("{:x}-{:x}", now.wall_ms, self.ids).into());
            members.insert("timestamp".to_owned(), timestamp(now.wall_ms).into());
        }
        let payload = serde_json::to_vec(&said).unwrap_or_default();
        self.advisories.push_back(Announcement { subject, payload });
    }
}
