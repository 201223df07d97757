//! Subjects that a client may publish and subscribe to.

use smallvec::{SmallVec, smallvec};

use super::replies::Allowance;
use crate::commands::{ACK, DELETE, INBOX, MAILBOX_DELETE, MAILBOX_MSG, RAW_ACK, SEND};
use crate::nats;
use crate::router::Patterns;

/// Rules for the clients of one user. Denying wins over allowing.
#[derive(Debug)]
pub struct Permissions {
    publish_allow: Option<Patterns>,
    publish_deny: Patterns,
    subscribe_allow: Option<Vec<Rule>>,
    subscribe_deny: Vec<Rule>,
    /// The denied subjects without a queue, to filter what a wildcard would bring.
    delivery_deny: Patterns,
    pub(super) responses: Option<Allowance>,
}

/// Lists of subjects; entries for subscribing may be `subject queue`.
#[derive(Debug, Default, Clone)]
pub struct PermissionsBuilder {
    /// What may be published to; everything if absent.
    pub publish_allow: Option<Vec<String>>,
    /// What may not.
    pub publish_deny: Vec<String>,
    /// What may be subscribed to; everything if absent.
    pub subscribe_allow: Option<Vec<String>>,
    /// What may not.
    pub subscribe_deny: Vec<String>,
    /// Answers to requests are allowed: how many (0 for any number) and for how many ms (0 for ever).
    pub responses: Option<(u64, u64)>,
}

/// A rule names something that is not a subject.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("permissions: {0:?} is not a valid subject")]
pub struct InvalidSubject(pub String);

#[derive(Debug)]
struct Rule {
    subject: Box<[u8]>,
    queue: Box<[u8]>,
}

impl PermissionsBuilder {
    /// The rules, if all subjects are valid.
    pub fn build(self) -> Result<Permissions, InvalidSubject> {
        // Who may only answer may not publish anything else.
        let publish_allow = match self.publish_allow {
            None if self.responses.is_some() => Some(Vec::new()),
            given => given,
        };
        let subscribe_deny = rules(self.subscribe_deny)?;
        let mut delivery_deny = Patterns::new();
        for rule in subscribe_deny.iter().filter(|rule| rule.queue.is_empty()) {
            delivery_deny.insert(&rule.subject);
        }
        Ok(Permissions {
            publish_allow: publish_allow.map(patterns).transpose()?,
            publish_deny: patterns(self.publish_deny)?,
            subscribe_allow: self.subscribe_allow.map(rules).transpose()?,
            subscribe_deny,
            delivery_deny,
            responses: self.responses.map(|(max, ttl_ms)| Allowance { max, ttl_us: ttl_ms * 1000 }),
        })
    }
}

impl Permissions {
    /// Whether a message may be published to `subject`, answers aside. What counts is what it makes the broker do.
    pub fn may_publish(&self, subject: &[u8]) -> bool {
        if let Some(command) = acknowledges(subject) {
            return !self.publish_deny.matches(subject) && self.may_publish(&command);
        }
        self.publish_allow.as_ref().is_none_or(|allow| allow.matches(subject))
            && !self.publish_deny.matches(subject)
            && !stands_for(subject).iter().any(|command| self.publish_deny.matches(command))
    }

    /// Whether messages may be published to every subject that a pattern stands for.
    pub fn may_publish_all(&self, pattern: &[u8]) -> bool {
        self.publish_allow.as_ref().is_none_or(|allow| allow.covers(pattern))
            && !self.publish_deny.overlaps(pattern)
    }

    /// Whether publishing to `subject` is denied by name, not for want of being allowed.
    pub fn denies_publish(&self, subject: &[u8]) -> bool {
        self.publish_deny.matches(subject)
    }

    /// Whether `subject` may be subscribed to, in the queue group if one is named.
    ///
    /// A pattern has to be allowed as a whole: every subject it could bring.
    pub fn may_subscribe(&self, subject: &[u8], queue: &[u8]) -> bool {
        let allowed =
            self.subscribe_allow.as_ref().is_none_or(|allow| applies(allow, subject, queue));
        allowed && !applies(&self.subscribe_deny, subject, queue)
    }

    /// Whether a subscription to `subject` may bring messages that are denied.
    pub fn needs_filter(&self, subject: &[u8]) -> bool {
        nats::has_wildcard(subject)
            && self.subscribe_deny.iter().any(|rule| nats::overlaps(&rule.subject, subject))
    }

    /// Whether a message to `subject` may be delivered.
    pub fn may_receive(&self, subject: &[u8]) -> bool {
        !self.delivery_deny.matches(subject)
    }
}

/// The commands that a subject of the older dialects may stand for: whether its end is a priority is not known here.
fn stands_for(subject: &[u8]) -> SmallVec<[Vec<u8>; 2]> {
    if let Some(tail) = subject.strip_prefix(MAILBOX_DELETE) {
        return smallvec![[DELETE, tail].concat()];
    }
    let tail = [INBOX, MAILBOX_MSG].iter().find_map(|prefix| subject.strip_prefix(*prefix));
    let Some(tail) = tail else { return smallvec![] };
    let address = tail.iter().rposition(|&byte| byte == b'.').map(|end| &tail[..end]);
    [Some(tail), address].into_iter().flatten().map(|tail| [SEND, tail].concat()).collect()
}

/// The ACK that a message to the reply subject of a raw delivery stands for.
fn acknowledges(subject: &[u8]) -> Option<Vec<u8>> {
    let address = subject.strip_prefix(RAW_ACK)?.splitn(3, |&byte| byte == b'.').nth(2);
    Some([ACK, address.unwrap_or_default()].concat())
}

/// Whether the list speaks of this subscription. Rules that name a queue decide for queue groups if
/// any of them knows the subject; the others decide otherwise.
fn applies(list: &[Rule], subject: &[u8], queue: &[u8]) -> bool {
    let mut about_subject = list.iter().filter(|rule| nats::covers(&rule.subject, subject));
    let mut plain = false;
    let mut queues = None;
    for rule in about_subject.by_ref() {
        if rule.queue.is_empty() {
            plain = true;
        } else if !queue.is_empty() {
            queues = Some(queues == Some(true) || nats::matches(&rule.queue, queue));
        }
    }
    queues.unwrap_or(plain)
}

fn patterns(subjects: Vec<String>) -> Result<Patterns, InvalidSubject> {
    let mut patterns = Patterns::new();
    for subject in subjects {
        if !nats::is_valid(subject.as_bytes()) {
            return Err(InvalidSubject(subject));
        }
        patterns.insert(subject.as_bytes());
    }
    Ok(patterns)
}

fn rules(entries: Vec<String>) -> Result<Vec<Rule>, InvalidSubject> {
    let rule = |entry: String| {
        let mut words = entry.split_ascii_whitespace();
        let subject = words.next().unwrap_or_default();
        let queue = words.next().unwrap_or_default();
        if !nats::is_valid(subject.as_bytes()) || words.next().is_some() {
            return Err(InvalidSubject(entry));
        }
        Ok(Rule { subject: subject.as_bytes().into(), queue: queue.as_bytes().into() })
    };
    entries.into_iter().map(rule).collect()
}
