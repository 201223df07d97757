//! Creating mailboxes.

use super::indexes::SlotIx;
use super::{Store, space_for};
use crate::error::{Error, Result};
use crate::log::Space;
use crate::mailbox::{Mailbox, Policy, check_name};
use crate::time::Now;
use crate::wire::op::Op;
use crate::wire::stamp::{Stamp, cause};

/// The longest description, in bytes.
const MAX_DESC: usize = 4096;

/// Most mailboxes that have each the next as the one for their dead letters.
const MAX_DEAD_LETTERS: usize = 100;

/// A mailbox to be created.
#[derive(Debug, Clone, Default)]
pub struct NewMailbox<'a> {
    /// Its address.
    pub address: &'a str,
    /// How long it lives; 0 is for ever.
    pub ttl_ms: u64,
    /// Free text.
    pub desc: &'a str,
    /// How it behaves.
    pub policy: Policy,
}

impl Store {
    /// Creates a mailbox.
    pub fn create_mailbox(&mut self, new: &NewMailbox<'_>, now: Now) -> Result<()> {
        self.tick(now);
        check_name(new.address)?;
        new.policy.check()?;
        check_desc(new.desc)?;
        self.check_dead_letters(new.address, new.policy.dead_letter.as_deref())?;
        if self.lookup(new.address, now).is_ok() {
            return Err(Error::MailboxExists(new.address.to_owned()));
        }
        if let Some(expired) = self.state.find(new.address) {
            self.expire_mailbox(expired, now);
        }
        self.check_mailboxes(new)?;
        self.add_mailbox(new, now)?;
        Ok(())
    }

    /// Refuses a mailbox whose dead letters would come back to it, or go too far to tell.
    pub(super) fn check_dead_letters(
        &self,
        mailbox: &str,
        dead_letter: Option<&str>,
    ) -> Result<()> {
        let refused = |problem: String| Err(Error::InvalidField { field: "dead_letter", problem });
        let mut next = dead_letter;
        let mut way = 0;
        while let Some(address) = next {
            if address == mailbox {
                return refused("dead letters would come back to the mailbox itself".to_owned());
            }
            // Mailboxes have been checked the same way, but a record of that may be lost: there can be circles.
            way += 1;
            if way > MAX_DEAD_LETTERS {
                return refused(format!("it leads through more than {MAX_DEAD_LETTERS} mailboxes"));
            }
            let slot = self.state.find(address).and_then(|index| self.state.slot(index));
            next = slot.and_then(|slot| slot.mailbox.policy().dead_letter.as_deref());
        }
        Ok(())
    }

    /// Removes a mailbox with everything in it.
    pub fn remove_mailbox(&mut self, address: &str, now: Now) -> Result<()> {
        self.tick(now);
        let index = self.lookup(address, now)?;
        let stamp = Some(Stamp { time_ms: now.wall_ms, address });
        let op = Op::MailboxRemoved { stamp, cause: cause::DELETED };
        self.log.reserve(space_for(&[&op]), Space::Reclaim, now.wall_ms)?;
        self.append(index, 0, &op);
        self.drop_mailbox(index);
        Ok(())
    }

    /// Adds a mailbox whose address is free and returns its slot.
    pub(super) fn add_mailbox(&mut self, new: &NewMailbox<'_>, now: Now) -> Result<SlotIx> {
        let number = self.state.next_number;
        let created_ms = now.wall_ms;
        let expires_ms = match new.ttl_ms {
            0 => 0,
            ttl => created_ms.saturating_add(ttl),
        };
        let mut policy = Vec::new();
        new.policy.encode(&mut policy);
        let (address, desc) = (new.address, new.desc);
        let op = Op::MailboxCreated { created_ms, expires_ms, address, desc, policy: &policy };
        self.log.reserve(space_for(&[&op]), Space::Store, now.wall_ms)?;
        self.log.append(op.kind(), 0, number, |out| op.encode(out));
        let mailbox = Mailbox::new(number, address, created_ms, expires_ms);
        Ok(self.state.add_mailbox(mailbox, desc, new.policy.clone()))
    }

    /// Takes a mailbox out of the state; who waits for it is told.
    pub(super) fn drop_mailbox(&mut self, index: SlotIx) {
        if let Some(slot) = self.state.slot(index) {
            let address = slot.mailbox.address.to_string();
            self.fail_waiters(index, &address);
            self.readers.lose(index);
            self.state.remove_mailbox(index);
        }
    }
}

/// Refuses a description that is too long.
pub(super) fn check_desc(desc: &str) -> Result<()> {
    if desc.len() > MAX_DESC {
        let problem = format!("it has {} bytes, at most {MAX_DESC} are allowed", desc.len());
        return Err(Error::InvalidField { field: "desc", problem });
    }
    Ok(())
}
