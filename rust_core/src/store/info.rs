//! Contents of the store, for operators and tests.

use super::indexes::SlotIx;
use super::{Amount, Store};
use crate::error::{Error, Result};
use crate::mailbox::{LEVELS, Policy};
use crate::time::Now;

/// So many slots are looked at in one go, free ones too.
const SLOTS_PER_LOOK: u32 = 10_000;
/// And no further mailbox once so many groups were.
const GROUPS_PER_LOOK: usize = 1_000;

/// What is known of a mailbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailboxInfo {
    /// Its address.
    pub address: String,
    /// Free text.
    pub desc: String,
    /// Wall time of creation.
    pub created_ms: u64,
    /// Wall time of expiry; 0 is never.
    pub expires_ms: u64,
    /// Messages that can be fetched.
    pub messages: u64,
    /// Messages that are not due yet.
    pub delayed: u64,
    /// Bytes of both, as stored.
    pub bytes: u64,
    /// What the ids of sends take, which counts to quotas as well.
    pub sent_id_bytes: u64,
    /// The `msg_id` of the next message.
    pub next_id: u64,
    /// Its policy.
    pub policy: Policy,
    /// Its groups.
    pub groups: Vec<GroupInfo>,
}

/// What is known of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupInfo {
    /// Its name.
    pub name: String,
    /// Per level, the first `msg_id` not delivered yet.
    pub cursors: [u64; LEVELS],
    /// Messages delivered and not acknowledged.
    pub outstanding: u64,
}

/// What is known of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreInfo {
    /// Mailboxes.
    pub mailboxes: u64,
    /// Segment files.
    pub segments: u64,
    /// Bytes of records in them.
    pub log_bytes: u64,
    /// Bytes of records that hold live messages.
    pub live_bytes: u64,
    /// Size of the newest checkpoint.
    pub checkpoint_bytes: u64,
    /// How many times the store has been opened.
    pub epoch: u32,
}

impl Store {
    /// What is known of a mailbox.
    pub fn mailbox(&mut self, address: &str, now: Now) -> Result<MailboxInfo> {
        self.tick(now);
        let index = self.lookup(address, now)?;
        Ok(self.describe(index))
    }

    /// What is known of these mailboxes; nothing of those that are not there. Stops behind one of many groups, so that
    /// the list may be shorter.
    pub fn mailboxes_at(
        &mut self,
        addresses: &[String],
        now: Now,
    ) -> Result<Vec<Option<MailboxInfo>>> {
        let (mut list, mut groups) = (Vec::with_capacity(addresses.len()), 0);
        for address in addresses {
            let found = match self.mailbox(address, now) {
                Ok(info) => Some(info),
                Err(Error::MailboxNotFound(_)) => None,
                Err(error) => return Err(error),
            };
            groups += found.as_ref().map_or(0, |info| info.groups.len());
            list.push(found);
            if groups >= GROUPS_PER_LOOK {
                break;
            }
        }
        Ok(list)
    }

    /// Up to `limit` mailboxes from slot `from` on, and the slot to go on with. Where many slots are free, or groups
    /// many, there may be fewer.
    pub fn mailboxes(&self, from: u32, limit: usize) -> (Vec<MailboxInfo>, Option<u32>) {
        let (mut list, mut groups) = (Vec::new(), 0);
        for index in self.state.indexes(from) {
            let looked_at = index.0 - from;
            if list.len() >= limit || looked_at >= SLOTS_PER_LOOK || groups >= GROUPS_PER_LOOK {
                return (list, Some(index.0));
            }
            if self.state.slot(index).is_some() {
                let info = self.describe(index);
                groups += info.groups.len();
                list.push(info);
            }
        }
        (list, None)
    }

    /// What is known of the store.
    pub fn info(&self) -> StoreInfo {
        StoreInfo {
            mailboxes: self.state.len() as u64,
            segments: self.log.segments().len() as u64,
            log_bytes: self.log.bytes(),
            live_bytes: self.state.live.total(),
            checkpoint_bytes: self.checkpoints.size(),
            epoch: self.state.epoch,
        }
    }

    /// What clients have: mailboxes and their bytes.
    pub fn usage(&self) -> Amount {
        self.state.usage.all()
    }

    /// What is counted to one user.
    pub fn usage_of(&self, owner: &str) -> Amount {
        self.state.usage.of_name(owner)
    }

    fn describe(&self, index: SlotIx) -> MailboxInfo {
        let slot = self.state.in_use(index);
        let mailbox = &slot.mailbox;
        let extras = mailbox.extras();
        MailboxInfo {
            address: mailbox.address.to_string(),
            desc: extras.map_or_else(String::new, |s| s.desc.to_string()),
            created_ms: mailbox.created_ms,
            expires_ms: mailbox.expires_ms,
            messages: mailbox.visible() as u64,
            delayed: extras.map_or(0, |s| s.delayed.len() as u64),
            bytes: mailbox.bytes,
            sent_id_bytes: extras.map_or(0, |s| s.sent_id_bytes()),
            next_id: mailbox.next_id,
            policy: mailbox.policy().clone(),
            groups: slot
                .groups()
                .map(|g| GroupInfo {
                    name: g.name.to_string(),
                    cursors: *g.group.cursors(),
                    outstanding: g.group.outstanding() as u64,
                })
                .collect(),
        }
    }
}
