//! What consumers say of messages, at the subjects that these carry.

use serde::Deserialize;

use super::{JetStream, duration};
use crate::consumer::AckPolicy;
use crate::front::{Call, Handled};
use crate::store::{ConsumerAck, Store};
use crate::time::Now;

/// Subjects of acknowledgements begin like this.
pub const ACK: &[u8] = b"$JS.ACK.";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NakOptions {
    delay: i64,
}

/// What a payload says; `None` if it says nothing that is known.
enum Said<'a> {
    Ack(ConsumerAck),
    /// Done, and the next please.
    Next(&'a [u8]),
}

fn parse(payload: &[u8]) -> Option<Said<'_>> {
    Some(Said::Ack(match payload {
        b"" | b"+ACK" | b"+OK" => ConsumerAck::Done,
        b"+WPI" => ConsumerAck::Progress,
        _ if payload.starts_with(b"+NXT") => return Some(Said::Next(&payload[4..])),
        _ if payload.starts_with(b"-NAK") => ConsumerAck::Return(delay_ms(&payload[4..])),
        _ if payload.starts_with(b"+TERM") => {
            let reason = String::from_utf8_lossy(&payload[5..]).trim().to_owned();
            ConsumerAck::Terminate(reason)
        }
        _ => return None,
    }))
}

fn delay_ms(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii();
    let ms = if text.starts_with(b"{") {
        let options: NakOptions = serde_json::from_slice(text).ok()?;
        u64::try_from(options.delay).ok()?.div_ceil(1_000_000)
    } else {
        duration::parse_duration_ms(std::str::from_utf8(text).ok()?)?
    };
    (ms > 0).then_some(ms)
}

impl JetStream {
    /// A consumer says something of a message. Unknown if nobody is there to hear it.
    pub(super) fn acknowledge(&mut self, store: &mut Store, call: &Call<'_>, now: Now) -> Handled {
        let Some(rest) = call.subject.strip_prefix(ACK) else { return Handled::Unknown };
        let Ok(rest) = std::str::from_utf8(rest) else { return Handled::Unknown };
        let tokens: Vec<&str> = rest.split('.').collect();
        let tokens = match tokens.len() {
            7 => &tokens[..],
            9.. => &tokens[2..],
            _ => return Handled::Unknown,
        };
        let (stream, consumer) = (tokens[0], tokens[1]);
        let Ok(key) = self.find_consumer(store, stream, consumer) else { return Handled::Unknown };
        if store.consumer_policy(key).is_none_or(|policy| policy.ack == AckPolicy::None) {
            return Handled::Unknown;
        }
        let msg_id = tokens[3].parse::<u64>().ok().and_then(|seq| seq.checked_sub(1));
        let number = tokens[4].parse::<u64>().ok();
        let (Some(msg_id), Some(number)) = (msg_id, number) else { return Handled::Done };
        let said = parse(call.payload);
        let mut heard = true;
        if let Some(said) = &said {
            let done = ConsumerAck::Done;
            let ack = match said {
                Said::Ack(ack) => ack,
                Said::Next(_) => &done,
            };
            heard = matches!(store.consumer_ack(key, (msg_id, number), ack, now), Ok(true));
        }
        self.tell_events(store, now);
        if let Some(Said::Next(request)) = said {
            self.pull_from(store, key, request, call, now);
        } else if heard {
            self.answer(call, store.end(), true, Vec::new());
        }
        Handled::Done
    }
}
