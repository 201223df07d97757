//! A store that is driven through scripted steps on a disk that may lose power at any moment.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use mq9_core::disk::Disk;
use mq9_core::error::{Error, Result};
use mq9_core::log::{Lsn, SyncMode};
use mq9_core::mailbox::{Level, Policy};
use mq9_core::store::{
    Ack, AckKind, Changes, Fetch, FetchOutcome, Fetched, GroupFetch, MemberId, NewMailbox, Options,
    Query, Send, Start, Store, maintain,
};
use mq9_core::time::Now;

pub const START: Now = Now { wall_ms: 1_700_000_000_000, mono_ms: 5_000 };
/// Later than every step, sooner than the long delays and lifetimes.
pub const NEAR: Now =
    Now { wall_ms: START.wall_ms + 3_600_000, mono_ms: START.mono_ms + 3_600_000 };
/// Later than everything.
pub const FAR: Now =
    Now { wall_ms: START.wall_ms + 200_000_000, mono_ms: START.mono_ms + 200_000_000 };

/// Small enough that a script fills several segments and needs several checkpoints.
pub const OPTIONS: Options = Options {
    segment_bytes: 4096,
    allocate_bytes: 4096,
    sync: SyncMode::Always,
    ack_wait_ms: 30_000,
    max_groups: 16,
    group_ttl_ms: 0,
    quotas: mq9_core::store::Quotas::DEFAULT,
    checkpoint_bytes: 12_000,
};

/// How a send differs from a plain one.
#[derive(Debug, Clone, Copy, Default)]
pub struct With {
    pub level: u8,
    pub key: &'static str,
    pub delay_ms: u64,
    pub ttl_ms: u64,
    pub size: usize,
}

/// One step of a script. Addresses and groups are single words.
#[derive(Debug, Clone)]
pub enum Step {
    Create(&'static str, Box<Policy>, u64),
    Send(&'static str, With),
    /// The same with an id.
    SendOnce(&'static str, &'static str, With),
    /// Cancels the first delayed message.
    Cancel(&'static str),
    Update(&'static str, fn(&mut Policy)),
    Fetch(&'static str, &'static str, &'static str, usize),
    Pin(&'static str, &'static str, Start),
    /// Mailbox, group, what, and which messages of the group's last batch.
    Ack(&'static str, &'static str, AckKind, usize),
    Delete(&'static str, usize),
    Remove(&'static str),
    RemoveGroup(&'static str, &'static str),
    Purge(&'static str),
    Wait(u64),
    Flush,
    Sync,
    Checkpoint,
    Rotate,
    Maintain,
    Close,
    /// Drops the store as a killed process would, and opens it on the same disk.
    Kill,
}

/// The ids each group of each mailbox was given.
pub type Given = BTreeMap<(&'static str, &'static str), Vec<u64>>;

/// A store and what its clients know.
pub struct World {
    disk: Arc<dyn Disk>,
    options: Options,
    store: Option<RefCell<Store>>,
    pub now: Now,
    steps: usize,
    /// The last batch of each mailbox and group.
    batches: BTreeMap<(&'static str, &'static str), Vec<u64>>,
    /// Everything each group was given since it was pinned.
    pub given: Given,
    /// The same as of the last moment at which everything was acknowledged.
    given_for_sure: Given,
    /// Steps done by this opening, with the end of the log after each.
    ends: Vec<(usize, Lsn)>,
    acknowledged: Option<usize>,
}

impl World {
    pub fn open(disk: Arc<dyn Disk>, options: Options) -> Result<World> {
        let store = open(&disk, options, START)?;
        Ok(World::around(store, disk, options))
    }

    /// Goes on with a store that is open.
    pub fn around(store: Store, disk: Arc<dyn Disk>, options: Options) -> World {
        World {
            disk,
            options,
            store: Some(RefCell::new(store)),
            now: START,
            steps: 0,
            batches: BTreeMap::new(),
            given: Given::new(),
            given_for_sure: Given::new(),
            ends: Vec::new(),
            acknowledged: None,
        }
    }

    /// Does the next step. An error is one of the disk: refusals are part of the script.
    pub fn step(&mut self, step: &Step) -> Result<()> {
        let outcome = self.perform(step);
        if let Some(store) = &self.store {
            store.borrow().check_invariants();
        }
        let index = self.steps;
        self.steps += 1;
        let outcome = match outcome {
            Err(e @ (Error::Io { .. } | Error::DiskFull(_) | Error::WritesStopped(_))) => Err(e),
            Err(Error::NewerFormat { .. } | Error::Locked) => panic!("{outcome:?}"),
            _ => Ok(()),
        };
        if outcome.is_ok()
            && let Some(store) = &self.store
        {
            self.ends.push((index, store.borrow().end()));
        }
        self.acknowledged();
        outcome
    }

    /// The last step that has been acknowledged, with all before it.
    pub fn acknowledged(&mut self) -> Option<usize> {
        if let Some(store) = &self.store {
            let (reached, end) = (store.borrow().acknowledged(), store.borrow().end());
            if reached >= end {
                self.given_for_sure.clone_from(&self.given);
            }
            let done = self.ends.iter().rev().find(|(_, end)| *end <= reached);
            self.acknowledged = self.acknowledged.max(done.map(|(step, _)| *step));
        }
        self.acknowledged
    }

    pub fn with<R>(&mut self, use_it: impl FnOnce(&mut Store) -> R) -> R {
        use_it(self.store.as_mut().unwrap().get_mut())
    }

    fn perform(&mut self, step: &Step) -> Result<()> {
        self.now.wall_ms += 10;
        self.now.mono_ms += 10;
        let now = self.now;
        match step {
            Step::Close | Step::Kill => {
                let store = self.store.take().unwrap().into_inner();
                self.acknowledged = self.acknowledged.max(self.closing(&store));
                if matches!(step, Step::Close) {
                    store.close()?;
                } else {
                    drop(store);
                    self.given.clone_from(&self.given_for_sure);
                    self.batches.clear();
                }
                self.ends.clear();
                self.store = Some(RefCell::new(open(&self.disk, self.options, now)?));
                return Ok(());
            }
            Step::Maintain => {
                while maintain(self.store.as_ref().unwrap(), || now)? {}
                return Ok(());
            }
            Step::Wait(ms) => {
                self.now.wall_ms += ms;
                self.now.mono_ms += ms;
            }
            _ => {}
        }
        let now = self.now;
        let name = format!("{:03}", self.steps);
        let store = self.store.as_mut().unwrap().get_mut();
        match step {
            Step::Create(address, policy, ttl_ms) => {
                let policy = Policy::clone(policy);
                let new = NewMailbox { address, ttl_ms: *ttl_ms, desc: "made", policy };
                store.create_mailbox(&new, now)
            }
            Step::Send(address, with) | Step::SendOnce(address, _, with) => {
                let name = match (with.delay_ms, *address, with.key) {
                    (1.., "last", _) => REPLACING.to_owned(),
                    (1.., _, key) if !key.is_empty() => format!("{key}{REPLACING}"),
                    _ => name,
                };
                let payload = payload(address, &name, with.size);
                let level = Level::new(with.level).unwrap_or(Level::NORMAL);
                let With { key, delay_ms, ttl_ms, .. } = *with;
                let (tags, headers) = ("t", &b"h: 1\r\n"[..]);
                let payload = payload.as_bytes();
                let send =
                    Send { level, key, tags, headers, payload, delay_ms, ttl_ms, memory: false };
                match step {
                    Step::SendOnce(_, id, _) => store.send_once(address, id, &send, now).map(drop),
                    _ => store.send(address, &send, now).map(drop),
                }
            }
            Step::Fetch(address, group, member, max) => {
                let ids: Vec<u64> = fetch(store, address, group, member, *max, now)?
                    .iter()
                    .map(|(meta, _)| meta.msg_id)
                    .collect();
                if !ids.is_empty() {
                    self.given.entry((address, group)).or_default().extend(&ids);
                    self.batches.insert((address, group), ids);
                }
                Ok(())
            }
            Step::Pin(address, group, start) => {
                let force = true;
                let (name, member) = ((*group).to_owned(), MemberId::Conn);
                let group_fetch = Some(GroupFetch { name, member, force });
                let request =
                    Fetch { group: group_fetch, start: *start, max_msgs: 0, ..Fetch::all(address) };
                store.fetch(request, now)?;
                self.given.remove(&(address, group));
                Ok(())
            }
            Step::Ack(address, group, kind, nth) => {
                let Some(batch) = self.batches.get(&(address, group)) else { return Ok(()) };
                let msg_ids = &[batch[nth % batch.len()]];
                store.ack(&Ack { address, group, msg_ids, kind: *kind }, now)
            }
            Step::Delete(address, nth) => {
                let ids: Vec<u64> =
                    everything(store, address, now)?.iter().map(|(m, _)| m.msg_id).collect();
                match ids.is_empty() {
                    true => Ok(()),
                    false => store.delete(address, ids[nth % ids.len()], now),
                }
            }
            Step::Remove(address) => {
                self.batches.retain(|(of, _), _| of != address);
                self.given.retain(|(of, _), _| of != address);
                store.remove_mailbox(address, now)
            }
            Step::RemoveGroup(address, group) => {
                self.batches.remove(&(address, group));
                self.given.remove(&(address, group));
                store.remove_group(address, group, now)
            }
            Step::Cancel(address) => {
                let delayed = store.query_delayed(address, None, 1, u64::MAX, now)?;
                match delayed.iter().next().map(|(meta, _)| meta.msg_id) {
                    Some(delay_id) => store.cancel_delayed(address, delay_id, now),
                    None => Ok(()),
                }
            }
            Step::Update(address, change) => {
                let changes = Changes { desc: Some("changed"), ttl_ms: None };
                store.update_mailbox(address, changes, change, now)
            }
            Step::Purge(address) => store.purge(address, now).map(drop),
            Step::Flush => store.flush(),
            Step::Sync => store.sync(),
            Step::Checkpoint => store.checkpoint(),
            Step::Rotate => store.rotate(now),
            Step::Wait(_) => {
                while store.tick(now) {}
                // A group that nobody used was given nothing any more.
                let left = store.mailbox("idle", now).map_or(Vec::new(), |info| info.groups);
                let is_there = |(of, group): &(&str, &str)| {
                    *of != "idle" || left.iter().any(|g| g.name == *group)
                };
                self.given.retain(|key, _| is_there(key));
                self.batches.retain(|key, _| is_there(key));
                Ok(())
            }
            Step::Maintain | Step::Close | Step::Kill => Ok(()),
        }
    }

    fn closing(&self, store: &Store) -> Option<usize> {
        let reached = store.acknowledged();
        self.ends.iter().rev().find(|(_, end)| *end <= reached).map(|(step, _)| *step)
    }
}

/// Ends the name of a delayed message that takes the place of another, by its key or because its mailbox keeps only the
/// newest: those that replace each other are not told apart. Two may become due between two syncs, and a power cut may
/// lose that the first one entered its lane and keep that the second did. The first enters again then, and takes the
/// place of the second.
pub const REPLACING: &str = "~";

/// A payload that no other step sends.
fn payload(address: &str, name: &str, size: usize) -> String {
    format!("{address}-{name}-{}", "x".repeat(size))
}

pub fn open(disk: &Arc<dyn Disk>, options: Options, now: Now) -> Result<Store> {
    let store = Store::open(Arc::clone(disk), options, 0x5eed_1234_9876_abcd ^ now.wall_ms, now)?;
    store.check_invariants();
    Ok(store)
}

pub fn fetch(
    store: &mut Store,
    address: &str,
    group: &str,
    member: &str,
    max_msgs: usize,
    now: Now,
) -> Result<Fetched> {
    let (name, member) = (group.to_owned(), MemberId::Named(member.to_owned()));
    let group = Some(GroupFetch { name, member, force: false });
    let request = Fetch { group, max_msgs, ..Fetch::all(address) };
    match store.fetch(request, now)? {
        FetchOutcome::Messages(batch) => Ok(batch),
        FetchOutcome::Waiting(_) => panic!("did not ask to wait"),
    }
}

pub fn everything(store: &mut Store, address: &str, now: Now) -> Result<Fetched> {
    let query = Query { limit: usize::MAX, max_bytes: u64::MAX, ..Query::default() };
    store.query(address, &query, now)
}
