//! Quotas of clients: refused where more is asked for, before anything is done.

use super::Store;
use super::create::NewMailbox;
use super::fetch::{Fetch, FetchOutcome};
use super::indexes::SlotIx;
use super::send::{Send, make_room};
use super::update::SURPLUS_AT_ONCE;
use super::usage::is_brokers;
use crate::error::{Error, Result};
use crate::mailbox::Mailbox;
use crate::time::Now;

/// How many fetches wait, or requests of consumers.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Waits {
    /// Altogether.
    pub all: usize,
    /// Of the user who asks.
    pub of_user: usize,
    /// Of the connection that asks.
    pub of_connection: usize,
}

/// Most of everything that clients can have; 0 is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quotas {
    /// Mailboxes altogether.
    pub max_mailboxes: u64,
    /// Mailboxes that one user created.
    pub max_mailboxes_per_user: u64,
    /// Bytes of all messages, as stored.
    pub max_store_bytes: u64,
    /// Bytes of the messages in mailboxes that one user created.
    pub max_bytes_per_user: u64,
    /// Fetches that wait, altogether.
    pub max_waits: usize,
    /// Fetches of one user that wait.
    pub max_waits_per_user: usize,
    /// Fetches of one connection that wait.
    pub max_waits_per_connection: usize,
}

impl Quotas {
    /// No limits but the one that keeps a connection from waiting for everything.
    pub const DEFAULT: Quotas = Quotas {
        max_mailboxes: 0,
        max_mailboxes_per_user: 0,
        max_store_bytes: 0,
        max_bytes_per_user: 0,
        max_waits: 0,
        max_waits_per_user: 0,
        max_waits_per_connection: 1024,
    };
}

impl Default for Quotas {
    fn default() -> Quotas {
        Quotas::DEFAULT
    }
}

impl Store {
    /// What clients may have at most.
    pub fn quotas(&self) -> &Quotas {
        &self.options.quotas
    }

    /// Most groups of a mailbox, and consumers of a stream.
    pub fn max_groups(&self) -> usize {
        self.options.max_groups
    }

    /// Refuses a mailbox where there are enough already.
    pub(super) fn check_mailboxes(&self, new: &NewMailbox<'_>) -> Result<()> {
        if is_brokers(new.address) {
            return Ok(());
        }
        let (quotas, usage) = (&self.options.quotas, &self.state.usage);
        let most = quotas.max_mailboxes;
        if most > 0 && usage.all().mailboxes >= most {
            return Err(exceeded("max_mailboxes", most, "mailboxes"));
        }
        let most = quotas.max_mailboxes_per_user;
        if most > 0
            && let Some(owner) = new.policy.owner.as_deref()
            && usage.of_name(owner).mailboxes >= most
        {
            return Err(exceeded("max_mailboxes_per_user", most, "mailboxes"));
        }
        Ok(())
    }

    /// Refuses a message of `len` bytes that would not fit with what is remembered `besides`, what makes room for it
    /// counted out.
    pub(super) fn check_bytes(
        &self,
        index: SlotIx,
        send: &Send<'_>,
        len: u64,
        besides: u64,
    ) -> Result<()> {
        self.check_more_bytes(index, len + besides, |mailbox| freed_by(mailbox, send, len))
    }

    /// Refuses so many bytes more where they would not fit, what makes room for them counted out.
    pub(super) fn check_more_bytes(
        &self,
        index: SlotIx,
        more: u64,
        freed: impl FnOnce(&Mailbox) -> Result<u64>,
    ) -> Result<()> {
        let quotas = &self.options.quotas;
        let (total, per_user) = (quotas.max_store_bytes, quotas.max_bytes_per_user);
        if total == 0 && per_user == 0 {
            return Ok(());
        }
        let slot = self.state.in_use(index);
        let usage = &self.state.usage;
        let over = |used: u64, most: u64, freed: u64| {
            most > 0 && used.saturating_add(more).saturating_sub(freed) > most
        };
        let (all, own) = (usage.all().bytes, usage.of(slot.owner).bytes);
        if is_brokers(&slot.mailbox.address) || !(over(all, total, 0) || over(own, per_user, 0)) {
            return Ok(());
        }
        let freed = freed(&slot.mailbox)?;
        if over(all, total, freed) {
            return Err(exceeded("max_store_bytes", total, "bytes"));
        }
        if over(own, per_user, freed) {
            return Err(exceeded("max_bytes_per_user", per_user, "bytes"));
        }
        Ok(())
    }

    /// The same as [`Store::fetch`], but where enough wait already, with those `elsewhere`, a fetch that would have to wait
    /// is refused. It changes nothing then.
    pub fn fetch_within_quotas(
        &mut self,
        fetch: Fetch,
        elsewhere: Waits,
        now: Now,
    ) -> Result<FetchOutcome> {
        let may_wait = match fetch.wait_ms {
            0 => Ok(()),
            _ => self.check_waits(fetch.conn, fetch.user.as_deref(), elsewhere),
        };
        let Err(full) = may_wait else { return self.fetch(fetch, now) };
        if self.would_make_group(&fetch, now)? {
            let look = Fetch { group: None, max_msgs: 1, wait_ms: 0, ..fetch.clone() };
            if is_empty(&self.fetch(look, now)?) {
                return Err(full);
            }
        }
        let outcome = self.fetch(Fetch { wait_ms: 0, ..fetch }, now)?;
        if is_empty(&outcome) { Err(full) } else { Ok(outcome) }
    }

    /// Whether a fetch makes its group, or has it begin anew.
    fn would_make_group(&self, fetch: &Fetch, now: Now) -> Result<bool> {
        let Some(group) = &fetch.group else { return Ok(false) };
        let slot = self.state.slot(self.lookup(&fetch.address, now)?);
        Ok(group.force || slot.is_none_or(|slot| slot.find_group(&group.name).is_none()))
    }

    /// Refuses to let a connection of a user wait where enough wait already, with those `elsewhere`.
    pub fn check_waits(&self, conn: u64, user: Option<&str>, elsewhere: Waits) -> Result<()> {
        let quotas = &self.options.quotas;
        let of_user = user.map_or(0, |user| self.waits_of_user(user) + elsewhere.of_user);
        let of_connection = self.waits_of(conn) + elsewhere.of_connection;
        for (setting, most, waiting) in [
            ("max_waiting_fetches", quotas.max_waits, self.waiting() + elsewhere.all),
            ("max_waiting_fetches_per_user", quotas.max_waits_per_user, of_user),
            ("max_waiting_fetches_per_connection", quotas.max_waits_per_connection, of_connection),
        ] {
            if most > 0 && waiting >= most {
                return Err(exceeded(setting, most as u64, "FETCHes that wait"));
            }
        }
        Ok(())
    }
}

fn is_empty(outcome: &FetchOutcome) -> bool {
    matches!(outcome, FetchOutcome::Messages(batch) if batch.is_empty())
}

fn exceeded(setting: &'static str, limit: u64, what: &'static str) -> Error {
    Error::QuotaExceeded { setting, limit, what }
}

/// Bytes of the messages that go when this one comes.
fn freed_by(mailbox: &Mailbox, send: &Send<'_>, len: u64) -> Result<u64> {
    let delayed = send.delay_ms > 0;
    if mailbox.policy().latest && !delayed {
        let going = mailbox.iter_from(0).take(SURPLUS_AT_ONCE);
        return Ok(going.map(|(_, entry)| u64::from(entry.len)).sum());
    }
    // A delayed message replaces nothing until it is due.
    let key = if delayed { "" } else { send.key };
    let size = |msg_id: u64| mailbox.get(msg_id).map_or(0, |(_, entry)| u64::from(entry.len));
    let evicted: u64 = make_room(mailbox, key, len)?.into_iter().map(size).sum();
    let keys = mailbox.extras().map(|extras| &extras.keys);
    let replaced = keys.and_then(|keys| keys.get(key)).map_or(0, |old| size(*old));
    Ok(evicted + replaced)
}
