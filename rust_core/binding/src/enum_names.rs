//! The words that stand for the core's choices in Python.

use std::collections::BTreeMap;

use mq9_core::log::SyncMode;
use mq9_core::mailbox::{Discard, Level, MessageTtls, Policy, Tier};
use mq9_core::store::{AckKind, DamageKind, Start};

use crate::errors::{Failure, Result};

/// When an acknowledgement may leave.
pub fn sync_mode(word: &str, interval_ms: u64) -> Result<SyncMode> {
    match word {
        "always" => Ok(SyncMode::Always),
        "interval" => Ok(SyncMode::Interval { ms: interval_ms }),
        "none" => Ok(SyncMode::None),
        _ => Err(unknown("sync", word, "always, interval or none")),
    }
}

/// Where messages are kept.
pub fn tier(word: &str) -> Result<Tier> {
    match word {
        "durable" => Ok(Tier::Durable),
        "memory" => Ok(Tier::Memory),
        _ => Err(unknown("tier", word, "durable or memory")),
    }
}

/// The word for where messages are kept.
pub fn of_tier(tier: Tier) -> &'static str {
    match tier {
        Tier::Durable => "durable",
        Tier::Memory => "memory",
    }
}

/// What makes room at a limit.
pub fn discard(word: &str) -> Result<Discard> {
    match word {
        "old" => Ok(Discard::Old),
        "new" => Ok(Discard::New),
        _ => Err(unknown("discard", word, "old or new")),
    }
}

/// The word for what makes room at a limit.
pub fn of_discard(discard: Discard) -> &'static str {
    match discard {
        Discard::Old => "old",
        Discard::New => "new",
    }
}

/// Lives of messages by the numbers of their levels.
pub fn message_ttls(given: &BTreeMap<u8, u64>) -> Result<MessageTtls> {
    let mut ttls = MessageTtls::default();
    for (&number, &ttl_ms) in given {
        let level = Level::new(number);
        let level = level.ok_or_else(|| Failure::invalid("message_ttls", "levels are 1 to 10"))?;
        ttls.set(level, ttl_ms);
    }
    Ok(ttls)
}

/// The same as Python has it.
pub fn of_message_ttls(ttls: &MessageTtls) -> BTreeMap<u8, u64> {
    ttls.iter().map(|(level, ttl_ms)| (level.number(), ttl_ms)).collect()
}

/// How long a group lives that nobody uses; 0 is for ever, nothing as long as the store says.
pub fn group_ttl(ms: Option<u64>) -> u64 {
    match ms {
        None => 0,
        Some(0) => Policy::NEVER,
        Some(ms) => ms,
    }
}

/// The same the other way round.
pub fn of_group_ttl(ms: u64) -> Option<u64> {
    match ms {
        0 => None,
        Policy::NEVER => Some(0),
        ms => Some(ms),
    }
}

/// Where reading starts.
pub fn start(word: &str, from_time_ms: Option<u64>, from_id: Option<u64>) -> Result<Start> {
    let missing = |field| Failure::invalid(field, format!("deliver={word:?} needs it"));
    match word {
        "latest" => Ok(Start::Latest),
        "earliest" => Ok(Start::Earliest),
        "from_time" => from_time_ms.map(Start::Since).ok_or_else(|| missing("from_time_ms")),
        "from_id" => from_id.map(Start::Id).ok_or_else(|| missing("from_id")),
        _ => Err(unknown("deliver", word, "latest, earliest, from_time or from_id")),
    }
}

/// What is said of a delivery.
pub fn ack_kind(word: &str, only: bool, delay_ms: u64) -> Result<AckKind> {
    if only && word != "ack" {
        return Err(Failure::invalid("only", format!("it has no meaning for kind={word:?}")));
    }
    if delay_ms > 0 && word != "nak" {
        return Err(Failure::invalid("delay_ms", format!("it has no meaning for kind={word:?}")));
    }
    match word {
        "ack" => Ok(AckKind::Done { only }),
        "nak" => Ok(AckKind::Return { delay_ms }),
        "progress" => Ok(AckKind::Progress),
        "term" => Ok(AckKind::Terminate),
        _ => Err(unknown("kind", word, "ack, nak, progress or term")),
    }
}

/// The level of a number.
pub fn level(field: &'static str, number: u8) -> Result<Level> {
    Level::new(number).ok_or_else(|| Failure::invalid(field, format!("{number} is not 1 to 10")))
}

/// The word for a kind of damage.
pub fn of_damage(kind: &DamageKind) -> &'static str {
    match kind {
        DamageKind::Record => "record",
        DamageKind::TornTail => "torn_tail",
        DamageKind::CutShort => "cut_short",
        DamageKind::Segment => "segment",
        DamageKind::Checkpoint => "checkpoint",
        DamageKind::Orphan => "orphan",
        DamageKind::Message { .. } => "message",
    }
}

fn unknown(field: &'static str, word: &str, known: &str) -> Failure {
    Failure::invalid(field, format!("{word:?} is not {known}"))
}
