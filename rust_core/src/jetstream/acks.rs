//! Acknowledgements of consumers, at the subjects that their messages carry.

use serde::Deserialize;

use super::{JetStream, duration};
use crate::consumer::AckPolicy;
use crate::front::{Call, Handled, Listeners};
use crate::store::{Acked, ConsumerAck, ConsumerKey, Delivery, MOST_GIVEN, Store};
use crate::time::Now;

/// Subjects of acknowledgements begin like this.
pub const ACK: &[u8] = b"$JS.ACK.";

/// Told to a connection whose message another was given since. Clients take 503 for an error.
const LATE: &str = "503 Delivered Again";
/// Told to whoever speaks of a message that has become a dead letter.
const DEAD_LETTER: &str = "503 Dead Letter";
/// Most bytes that are kept of the reason for which a message is terminated.
const MOST_REASON: usize = 1024;

/// Messages of one consumer that clients have done with, each acknowledged by itself and without a wish to hear of it.
/// They are carried out together, before anything else is.
#[derive(Debug)]
pub(super) struct Unrecorded {
    key: ConsumerKey,
    /// Acknowledgements of this consumer begin like this.
    start: Vec<u8>,
    msg_ids: Vec<u64>,
}

impl Unrecorded {
    /// Which message is acknowledged at a subject, if it is one of the same consumer's.
    fn message_at(&self, subject: &[u8]) -> Option<u64> {
        let rest = subject.strip_prefix(&self.start[..])?;
        let mut tokens = rest.split(|&byte| byte == b'.');
        let mut next = || tokens.next().and_then(number);
        let (_count, seq, _number) = (u32::try_from(next()?).ok()?, next()?, next()?);
        let is_whole =
            tokens.next().is_some() && tokens.next().is_some() && tokens.next().is_none();
        seq.checked_sub(1).filter(|_| is_whole)
    }
}

/// A number of a subject, of digits alone.
fn number(token: &[u8]) -> Option<u64> {
    let add = |sum: u64, digit: &u8| {
        let digit = digit.wrapping_sub(b'0');
        sum.checked_mul(10)?.checked_add((digit < 10).then_some(digit.into())?)
    };
    if token.is_empty() { None } else { token.iter().try_fold(0, add) }
}

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
        _ if payload.starts_with(b"+TERM") => ConsumerAck::Terminate(reason(&payload[5..])),
        _ => return None,
    }))
}

/// The reason for which a message is terminated, cut between two characters.
fn reason(text: &[u8]) -> String {
    let text = text.trim_ascii();
    let mut end = text.len().min(MOST_REASON);
    while end > 0 && text.get(end).is_some_and(|byte| byte & 0xc0 == 0x80) {
        end -= 1;
    }
    String::from_utf8_lossy(&text[..end]).trim().to_owned()
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
    /// Whether something is to be done by [`JetStream::record_acks`].
    pub fn has_acks(&self) -> bool {
        self.unrecorded.is_some()
    }

    /// Carries out acknowledgements that came one behind the other and that nobody waits for. Nothing else may be asked
    /// of the store before that.
    pub fn record_acks(&mut self, store: &mut Store, now: Now) {
        if let Some(Unrecorded { key, msg_ids, .. }) = self.unrecorded.take() {
            // What cannot be written now comes again.
            let _ = store.consumer_done(key, msg_ids, now);
            self.move_exhausted(store, now);
            self.tell_events(store, now);
        }
    }

    /// Whether it is enough to carry out an acknowledgement together with others.
    fn is_plain(call: &Call<'_>) -> bool {
        call.reply.is_empty() && matches!(call.payload, b"" | b"+ACK" | b"+OK")
    }

    /// Keeps an acknowledgement for [`JetStream::record_acks`], if it is one more of the same consumer.
    pub(super) fn joins_acks(&mut self, call: &Call<'_>) -> bool {
        let Some(acks) = self.unrecorded.as_mut().filter(|_| Self::is_plain(call)) else {
            return false;
        };
        let joins = acks.message_at(call.subject).filter(|_| acks.msg_ids.len() < MOST_GIVEN);
        acks.msg_ids.extend(joins);
        joins.is_some()
    }

    /// A consumer says something of a message. Unknown if nobody is there to hear it.
    pub(super) fn acknowledge(
        &mut self,
        store: &mut Store,
        call: &Call<'_>,
        now: Now,
        listeners: &dyn Listeners,
    ) -> Handled {
        let Some(rest) = call.subject.strip_prefix(ACK) else { return Handled::Unknown };
        let Ok(rest) = std::str::from_utf8(rest) else { return Handled::Unknown };
        let all: Vec<&str> = rest.split('.').collect();
        let first = match all.len() {
            7 => 0,
            9.. => 2,
            _ => return Handled::Unknown,
        };
        let tokens = &all[first..];
        let (stream, consumer) = (tokens[0], tokens[1]);
        let Ok(key) = self.find_consumer(store, stream, consumer) else { return Handled::Unknown };
        let policy = store.consumer_policy(key).map_or(AckPolicy::None, |policy| policy.ack);
        if policy == AckPolicy::None {
            return Handled::Unknown;
        }
        let msg_id = tokens[3].parse::<u64>().ok().and_then(|seq| seq.checked_sub(1));
        let (count, number) = (tokens[2].parse().ok(), tokens[4].parse().ok());
        let (Some(msg_id), Some(count), Some(number)) = (msg_id, count, number) else {
            return Handled::Done;
        };
        if policy == AckPolicy::Explicit && Self::is_plain(call) {
            let names = all[..first + 2].iter().map(|token| token.len() + 1).sum::<usize>();
            let start = call.subject[..ACK.len() + names].to_vec();
            self.unrecorded = Some(Unrecorded { key, start, msg_ids: vec![msg_id] });
            return Handled::Done;
        }
        let wants_to_know = !call.reply.is_empty();
        let of = Delivery { msg_id, number, count, conn: call.cid, wants_to_know };
        let said = parse(call.payload);
        let mut acked = Ok(Acked::Heard);
        if let Some(said) = &said {
            let ack = match said {
                Said::Ack(ConsumerAck::Terminate(why)) => match self.grave(store, key, msg_id) {
                    Some(grave) => ConsumerAck::Bury(why.clone(), grave),
                    None => ConsumerAck::Terminate(why.clone()),
                },
                Said::Ack(ack) => ack.clone(),
                Said::Next(_) => ConsumerAck::Done,
            };
            acked = store.consumer_ack(key, &of, &ack, now);
        }
        self.move_exhausted(store, now);
        self.tell_events(store, now);
        match (said, acked) {
            (_, Ok(Acked::Late)) if wants_to_know => {
                self.status(call.cid, call.reply, store.end(), LATE);
            }
            (_, Ok(Acked::DeadLetter)) if wants_to_know => {
                self.status(call.cid, call.reply, store.end(), DEAD_LETTER);
            }
            (Some(Said::Next(request)), _) => {
                self.pull_from(store, key, request, call, now, listeners);
            }
            (_, Ok(Acked::Heard)) => self.answer(call, store.end(), true, Vec::new()),
            _ => {}
        }
        Handled::Done
    }
}
