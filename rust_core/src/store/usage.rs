//! Usage of clients: mailboxes and their bytes, altogether and by who created them.
//!
//! Counts only. What may be is for the commands to decide. The broker's own mailboxes are not in it.

use std::sync::Arc;

use hashbrown::HashMap;

use crate::mailbox::STREAM_PREFIX;

/// Mailboxes, and the bytes of their messages as stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    /// Mailboxes.
    pub mailboxes: u64,
    /// Bytes of their messages.
    pub bytes: u64,
}

/// Whom a mailbox is counted to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnerIx(u32);

/// Those of nobody in particular.
const NOBODY: OwnerIx = OwnerIx(0);
/// Those of the broker are not counted.
const BROKER: OwnerIx = OwnerIx(u32::MAX);

/// What there is.
#[derive(Debug)]
pub struct Usage {
    all: Amount,
    /// By owner; nobody first.
    owners: Vec<Amount>,
    by_name: HashMap<Arc<str>, OwnerIx, foldhash::fast::RandomState>,
}

impl Default for Usage {
    fn default() -> Usage {
        Usage {
            all: Amount::default(),
            owners: vec![Amount::default()],
            by_name: HashMap::default(),
        }
    }
}

impl Usage {
    /// Whom a mailbox is counted to.
    pub fn owner_of(&mut self, address: &str, owner: Option<&str>) -> OwnerIx {
        let Some(name) = owner.filter(|_| !is_brokers(address)) else {
            return if is_brokers(address) { BROKER } else { NOBODY };
        };
        if let Some(known) = self.by_name.get(name) {
            return *known;
        }
        let new = OwnerIx(self.owners.len() as u32);
        self.owners.push(Amount::default());
        self.by_name.insert(name.into(), new);
        new
    }

    /// What all have.
    pub fn all(&self) -> Amount {
        self.all
    }

    /// What the owner of a mailbox has; nothing if nobody owns it.
    pub fn of(&self, owner: OwnerIx) -> Amount {
        if owner == NOBODY {
            return Amount::default();
        }
        self.owners.get(owner.0 as usize).copied().unwrap_or_default()
    }

    /// What an owner has.
    pub fn of_name(&self, name: &str) -> Amount {
        self.by_name.get(name).map_or(Amount::default(), |owner| self.of(*owner))
    }

    /// A mailbox comes, empty.
    pub fn add_mailbox(&mut self, owner: OwnerIx) {
        if let Some(amount) = self.owners.get_mut(owner.0 as usize) {
            amount.mailboxes += 1;
            self.all.mailboxes += 1;
        }
    }

    /// A mailbox goes with these bytes.
    pub fn remove_mailbox(&mut self, owner: OwnerIx, bytes: u64) {
        if let Some(amount) = self.owners.get_mut(owner.0 as usize) {
            amount.mailboxes -= 1;
            self.all.mailboxes -= 1;
        }
        self.change(owner, bytes, 0);
    }

    /// The bytes of a mailbox have changed. While a store is being read they are not known: they are counted at the end.
    #[inline]
    pub fn change(&mut self, owner: OwnerIx, before: u64, after: u64) {
        if let Some(amount) = self.owners.get_mut(owner.0 as usize) {
            let more = after.wrapping_sub(before);
            amount.bytes = amount.bytes.wrapping_add(more);
            self.all.bytes = self.all.bytes.wrapping_add(more);
        }
    }

    /// Panics unless these mailboxes are what is counted: address, owner, whom it is counted to, bytes. For tests.
    pub fn check_invariants<'a>(
        &self,
        mailboxes: impl Iterator<Item = (&'a str, Option<&'a str>, OwnerIx, u64)>,
    ) {
        let mut owners = vec![Amount::default(); self.owners.len()];
        for (address, owner, counted_to, bytes) in mailboxes {
            let expected = match owner {
                _ if is_brokers(address) => Some(BROKER),
                None => Some(NOBODY),
                Some(name) => self.by_name.get(name).copied(),
            };
            assert_eq!(Some(counted_to), expected, "whom {address} is counted to");
            if let Some(amount) = owners.get_mut(counted_to.0 as usize) {
                amount.mailboxes += 1;
                amount.bytes += bytes;
            }
        }
        assert_eq!(self.owners, owners, "mailboxes and bytes by owner");
        let all = owners.iter().fold(Amount::default(), |sum, of| Amount {
            mailboxes: sum.mailboxes + of.mailboxes,
            bytes: sum.bytes + of.bytes,
        });
        assert_eq!(self.all, all, "mailboxes and bytes altogether");
    }

    /// Bytes are counted anew from here on.
    pub fn forget_bytes(&mut self) {
        self.all.bytes = 0;
        self.owners.iter_mut().for_each(|amount| amount.bytes = 0);
    }
}

/// Names that no client can give are the broker's own, but for streams: clients create them.
pub fn is_brokers(address: &str) -> bool {
    address.starts_with('$') && !address.starts_with(STREAM_PREFIX)
}
