//! Runs a script on the store and on the model, and compares every reply.

use std::cell::RefCell;
use std::fmt::Debug;
use std::sync::Arc;

use mq9_core::error::Error;
use mq9_core::mailbox::{Policy, Tier};
use mq9_core::store::{
    Ack, Changes, Checkpointer, Compactor, Fetch, FetchOutcome, Fetched, NewMailbox, Options,
    Query, Send, Start, Store, maintain,
};
use mq9_core::time::Now;
use mq9_sim::SimDisk;

use crate::commands::{ADDRESSES, Aim, CONNS, Command, OWNERS, Search, change};
use crate::mailbox::{Mailbox, Message, Seen};
use crate::model::{Model, Refusal, Reply};

const FIRST_CONNS: [u64; CONNS] = [0, 1, 2];
const START: Now = Now { wall_ms: 1_700_000_000_000, mono_ms: 77_000 };

/// Upkeep in the middle of which other commands are carried out.
enum Upkeep {
    Checkpoint(Checkpointer),
    Compaction(Compactor),
}

/// A disagreement, or `None` where the script leads to something that nobody promises.
pub type Stop = Option<String>;

pub struct Run {
    options: Options,
    disk: SimDisk,
    store: RefCell<Store>,
    model: Model,
    upkeep: Option<Upkeep>,
    now: Now,
    latest_wall_ms: u64,
    opened: u64,
    /// The numbers of the open connections: each is used once in a run of the broker.
    conns: [u64; CONNS],
}

fn agree<T: PartialEq + Debug>(what: &str, store: T, model: T) -> Result<(), Stop> {
    if store == model {
        return Ok(());
    }
    Err(Some(format!("{what}\n store: {store:?}\n model: {model:?}")))
}

fn sound<T>(what: &str, outcome: Result<T, Error>) -> Result<T, Stop> {
    outcome.map_err(|e| Some(format!("{what} failed: {e:?}")))
}

fn seen(batch: &Fetched) -> Vec<Seen> {
    let seen = batch.iter().map(|(meta, message)| {
        assert_eq!((message.msg_id, message.level), (meta.msg_id, meta.level.number()));
        assert_eq!(message.create_ms, meta.create_ms);
        let message = Message {
            msg_id: message.msg_id,
            level: message.level,
            sent_ms: message.sent_ms,
            create_ms: message.create_ms,
            expires_ms: message.expires_ms,
            address: message.address.to_owned(),
            key: message.key.to_owned(),
            tags: message.tags.to_owned(),
            headers: String::from_utf8_lossy(message.headers).into_owned(),
            payload: message.payload.to_vec(),
        };
        (message, meta.deliveries)
    });
    let seen: Vec<Seen> = seen.collect();
    assert_eq!(seen.len(), batch.len(), "a message of a batch cannot be decoded");
    seen
}

fn refused(error: &Error) -> Reply {
    Reply::Refused(error.into())
}

fn reply<T>(outcome: Result<T, Error>, answer: impl FnOnce(T) -> Reply) -> Reply {
    outcome.map_or_else(|e| refused(&e), answer)
}

fn expected(outcome: Result<Reply, Refusal>) -> Reply {
    outcome.unwrap_or_else(Reply::Refused)
}

impl Run {
    pub fn new(options: Options) -> Run {
        let disk = SimDisk::new();
        let store = Store::open(Arc::new(disk.clone()), options, 1, START).unwrap();
        let (store, model) = (RefCell::new(store), Model::new(options, START));
        let (now, latest_wall_ms) = (START, START.wall_ms);
        Run {
            options,
            disk,
            store,
            model,
            upkeep: None,
            now,
            latest_wall_ms,
            opened: 1,
            conns: FIRST_CONNS,
        }
    }

    /// Carries out one command on both sides.
    pub fn step(&mut self, command: &Command) -> Result<(), Stop> {
        match *command {
            Command::Pass { ms } => {
                self.now.wall_ms += ms;
                self.now.mono_ms += ms;
            }
            Command::Jump { ms } => self.now.wall_ms = self.now.wall_ms.saturating_add_signed(ms),
            _ => {}
        }
        self.latest_wall_ms = self.latest_wall_ms.max(self.now.wall_ms);
        self.let_leases_end()?;
        self.model.tick(self.now);
        let (store, model) = self.carry_out(command)?;
        agree("the reply", store, model)?;
        self.compare_completions()?;
        for address in ADDRESSES {
            self.compare_info(address)?;
        }
        self.store.get_mut().check_invariants();
        agree("damage", self.store.get_mut().damage(), &[])
    }

    /// Where two groups would move messages in one tick, takes one lease after the other.
    fn let_leases_end(&mut self) -> Result<(), Stop> {
        let Some(ends) = self.model.contested(self.now.mono_ms) else { return Ok(()) };
        for mono_ms in ends {
            let now = Now { mono_ms, ..self.now };
            if self.model.contested(mono_ms).is_some() {
                return Err(None);
            }
            self.store.get_mut().tick(now);
            self.model.tick(now);
        }
        Ok(())
    }

    fn carry_out(&mut self, command: &Command) -> Result<(Reply, Reply), Stop> {
        let (now, model) = (self.now, &mut self.model);
        let store = self.store.get_mut();
        let done = |()| Reply::Done;
        Ok(match command {
            Command::Create { address, ttl_ms, policy } => {
                let (ttl_ms, policy) = (*ttl_ms, (**policy).clone());
                let new = NewMailbox { address, ttl_ms, desc: "", policy };
                (reply(store.create_mailbox(&new, now), done), expected(model.create(&new)))
            }
            Command::Update { address, ttl_ms, policy, fields } => {
                let to = |changed: &mut Policy| change(changed, policy, *fields);
                let changes = Changes { ttl_ms: *ttl_ms, desc: None };
                let updated = reply(store.update_mailbox(address, changes, to, now), done);
                (updated, expected(model.update(address, *ttl_ms, to).ok_or(None)?))
            }
            Command::Remove { address } => {
                (reply(store.remove_mailbox(address, now), done), expected(model.remove(address)))
            }
            Command::RemoveGroup { address, group } => {
                let removed = reply(store.remove_group(address, group, now), done);
                (removed, expected(model.remove_group(address, group)))
            }
            Command::Send { address, message } => {
                let send = Send {
                    memory: false,
                    level: message.level,
                    key: message.key,
                    tags: message.tags,
                    headers: message.headers.as_bytes(),
                    payload: &message.payload(),
                    delay_ms: message.delay_ms,
                    ttl_ms: message.ttl_ms,
                };
                if !message.id.is_empty() {
                    if model.is_vague(address, message.id, self.latest_wall_ms) {
                        return Err(None);
                    }
                    let sent = store.send_once(address, message.id, &send, now);
                    let sent = reply(sent, |once| Reply::Once(once.msg_id, once.duplicate));
                    return Ok((sent, expected(model.send_once(address, message.id, &send))));
                }
                // One by one and in batches is the same.
                let sent = match now.wall_ms.is_multiple_of(2) {
                    true => store.send(address, &send, now),
                    false => store.send_many(&[(address, send)], now).remove(0),
                };
                let sent = reply(sent, Reply::Sent);
                (sent, expected(model.send(address, &send)))
            }
            Command::Fetch(fetch) => self.fetch(fetch),
            Command::Ack { address, group, aims, kind } => {
                let msg_ids: Vec<u64> =
                    aims.iter().map(|aim| take_aim(model, address, group, *aim)).collect();
                let ack = Ack { address, group, msg_ids: &msg_ids, kind: *kind };
                let acked = reply(store.ack(&ack, now), done);
                (acked, expected(model.ack(address, group, &msg_ids, *kind)))
            }
            Command::Query { address, search } => self.query(address, search),
            Command::Delete { address, aim } => {
                let msg_id = take_aim(model, address, "", Aim::Any(*aim));
                let deleted = reply(store.delete(address, msg_id, now), done);
                (deleted, expected(model.delete(address, msg_id)))
            }
            // Delay numbers of what is in memory only may begin anew after a restart.
            Command::Cancel { address, .. } | Command::Delayed { address, .. }
                if model.find(address).is_some_and(|m| m.policy.tier == Tier::Memory) =>
            {
                (Reply::Done, Reply::Done)
            }
            Command::Cancel { address, nth } => {
                let delay_id = model.delay_id(address, *nth);
                let cancelled = reply(store.cancel_delayed(address, delay_id, now), done);
                (cancelled, expected(model.cancel(address, delay_id)))
            }
            Command::Delayed { address, skip, limit } => {
                let after = skip.checked_sub(1).map(|nth| model.delay_id(address, nth));
                let listed = store.query_delayed(address, after, *limit, u64::MAX, now);
                let listed = reply(listed, |batch| Reply::Batch(seen(&batch)));
                (listed, expected(model.list_delayed(address, after, *limit)))
            }
            Command::Purge { address } => {
                let purged = reply(store.purge(address, now), Reply::Purged);
                (purged, expected(model.purge(address)))
            }
            Command::Disconnect { conn } => {
                store.disconnect(self.conns[*conn], now);
                model.disconnect(self.conns[*conn]);
                self.conns[*conn] += CONNS as u64;
                (Reply::Done, Reply::Done)
            }
            Command::CancelWait { nth } => {
                if *nth < model.waiters.len() {
                    let waiter = model.waiters.remove(*nth);
                    agree("a wait to give up", store.cancel_wait(waiter.id), true)?;
                }
                (Reply::Done, Reply::Done)
            }
            Command::Pass { .. } | Command::Jump { .. } => {
                store.tick(now);
                (Reply::Done, Reply::Done)
            }
            _ => {
                store.tick(now);
                self.compare_completions()?;
                self.look_after(command)?;
                self.compare_everything()?;
                (Reply::Done, Reply::Done)
            }
        })
    }

    fn fetch(&mut self, fetch: &Fetch) -> (Reply, Reply) {
        let next_id = self.model.find(&fetch.address).map_or(0, |mailbox| mailbox.next_id);
        let start = match fetch.start {
            Start::Since(ms) => Start::Since(self.now.wall_ms - ms),
            Start::Id(id) => Start::Id((next_id + 1).saturating_sub(id)),
            start => start,
        };
        let conn = self.conns[fetch.conn as usize];
        let request = Fetch { start, conn, ..fetch.clone() };
        let mut waiter = None;
        let fetched = self.store.get_mut().fetch(request.clone(), self.now);
        let store = reply(fetched, |outcome| match outcome {
            FetchOutcome::Messages(batch) => Reply::Batch(seen(&batch)),
            FetchOutcome::Waiting(id) => {
                waiter = Some(id);
                Reply::Waiting
            }
        });
        let model = match self.model.fetch(request.clone()) {
            Ok((Reply::Waiting, cursors)) => {
                self.model.wait(waiter.unwrap_or(u64::MAX), request, cursors);
                Reply::Waiting
            }
            outcome => expected(outcome.map(|(reply, _)| reply)),
        };
        (store, model)
    }

    fn query(&mut self, address: &str, search: &Search) -> (Reply, Reply) {
        let next_id = self.model.find(address).map_or(0, |mailbox| mailbox.next_id);
        let query = Query {
            key: search.key,
            tags: &search.tags,
            since_ms: search.since_ms.map_or(0, |ms| self.now.wall_ms - ms),
            after_id: search.after.map(|back| next_id.saturating_sub(back)),
            before_id: search.before.map(|back| next_id.saturating_sub(back)),
            limit: search.limit,
            max_bytes: search.max_bytes,
            newest: search.newest,
        };
        let found = self.store.get_mut().query(address, &query, self.now);
        let found = reply(found, |batch| Reply::Batch(seen(&batch)));
        (found, expected(self.model.query(address, &query)))
    }

    fn look_after(&mut self, command: &Command) -> Result<(), Stop> {
        let now = self.now;
        match command {
            Command::Rotate => sound("rotate", self.store.get_mut().rotate(now)),
            Command::Upkeep { compact, budget } => self.upkeep_step(*compact, *budget),
            Command::Checkpoint => {
                self.upkeep = None;
                sound("checkpoint", self.store.get_mut().checkpoint())
            }
            Command::Maintain => {
                self.upkeep = None;
                sound("maintain", maintain(&self.store, || now)).map(drop)
            }
            Command::Kill => {
                sound("flush", self.store.get_mut().flush())?;
                self.reopen(false)
            }
            _ => self.reopen(true),
        }
    }

    fn upkeep_step(&mut self, compact: bool, budget: usize) -> Result<(), Stop> {
        let now = self.now;
        let store = self.store.get_mut();
        match self.upkeep.take() {
            None if compact => {
                if let Some(mut compactor) = store.pick_compaction() {
                    sound("load", compactor.load())?;
                    self.upkeep = Some(Upkeep::Compaction(compactor));
                }
            }
            None => {
                let checkpointer = sound("begin_checkpoint", store.begin_checkpoint())?;
                self.upkeep = Some(Upkeep::Checkpoint(checkpointer));
            }
            Some(Upkeep::Compaction(mut compactor)) => {
                let mut left = budget;
                while left > 0
                    && let Some(candidate) = compactor.next_message()
                {
                    sound("compact", store.compact(&candidate, now))?;
                    left -= 1;
                }
                if left == 0 {
                    self.upkeep = Some(Upkeep::Compaction(compactor));
                } else {
                    store.finish_compaction(&compactor);
                }
                sound("reclaim", store.reclaim())?;
            }
            Some(Upkeep::Checkpoint(mut checkpointer)) => {
                if sound("capture", store.capture(&mut checkpointer, budget))? {
                    sound("write", checkpointer.write(|| Ok(())))?;
                    self.upkeep = Some(Upkeep::Checkpoint(checkpointer));
                } else {
                    sound("finish", checkpointer.finish())?;
                    drop(store.install_checkpoint(checkpointer));
                }
            }
        }
        Ok(())
    }

    /// Ends the process, by its own will or killed, and opens the store again. If it was killed, a wall clock
    /// that was set back has been put right by then: that something expired may not have been written.
    fn reopen(&mut self, cleanly: bool) -> Result<(), Stop> {
        let wall_ms = if cleanly { self.now.wall_ms } else { self.latest_wall_ms };
        self.now = Now { wall_ms, mono_ms: 100 + self.opened };
        self.opened += 1;
        self.conns = FIRST_CONNS;
        // The old store holds its disk until it is replaced: it gets one that nobody looks at.
        let disk = self.disk.snapshot();
        let elsewhere = Store::open(Arc::new(SimDisk::new()), self.options, 0, self.now);
        let old = self.store.replace(elsewhere.unwrap());
        if cleanly {
            self.upkeep = None;
            sound("close", old.close())?;
        } else {
            self.disk = disk;
            drop(old);
            self.upkeep = None;
        }
        let disk = Arc::new(self.disk.clone());
        let store = Store::open(disk, self.options, self.opened, self.now);
        self.store = RefCell::new(sound("open", store)?);
        self.model.reopen(self.now);
        self.store.get_mut().tick(self.now);
        self.model.tick(self.now);
        Ok(())
    }

    fn compare_completions(&mut self) -> Result<(), Stop> {
        let store = self.store.get_mut();
        // In which order mailboxes are served is the store's choice.
        let order: Vec<String> =
            store.mailboxes(0, usize::MAX).0.into_iter().map(|mailbox| mailbox.address).collect();
        let mut completions: Vec<(u64, Reply)> = store
            .completions(self.now)
            .into_iter()
            .map(|done| (done.waiter, reply(done.outcome, |batch| Reply::Batch(seen(&batch)))))
            .collect();
        completions.sort_by_key(|(id, _)| *id);
        agree("completions", completions, self.model.completions(&order))?;
        let waiting = self.store.get_mut().waiting();
        agree("the number of waits", waiting, self.model.waiters.len())?;
        for user in OWNERS {
            let waits = self.model.waiters.iter();
            let own = waits.filter(|waiter| waiter.request.user.as_deref() == Some(user)).count();
            agree("a user's waits", self.store.get_mut().waits_of_user(user), own)?;
        }
        self.compare_usage()?;
        agree("a wait for what is available", None, self.model.overlooked())
    }

    fn compare_info(&mut self, address: &str) -> Result<(), Stop> {
        let info = self.store.get_mut().mailbox(address, self.now);
        let info = reply(info, |mut info| {
            // A new group may take the place of a removed one: their order means nothing.
            info.groups.sort_by(|a, b| a.name.cmp(&b.name));
            // How long ids are remembered beyond their window means nothing.
            info.sent_id_bytes = 0;
            Reply::Info(Box::new(info))
        });
        agree("the mailbox", info, expected(self.model.info(address)))
    }

    fn compare_usage(&mut self) -> Result<(), Stop> {
        let usage = self.store.get_mut().usage();
        let (list, _) = self.store.get_mut().mailboxes(0, usize::MAX);
        let ids = |address: &str| {
            list.iter().find(|info| info.address == address).map_or(0, |info| info.sent_id_bytes)
        };
        let counted = |mailbox: &Mailbox| mailbox.bytes() + ids(&mailbox.address);
        let bytes = self.model.mailboxes.iter().map(counted).sum();
        agree("usage", (usage.mailboxes, usage.bytes), (self.model.mailboxes.len() as u64, bytes))?;
        for owner in OWNERS {
            let usage = self.store.get_mut().usage_of(owner);
            let of = |mailbox: &&Mailbox| mailbox.policy.owner.as_deref() == Some(owner);
            let own: Vec<_> = self.model.mailboxes.iter().filter(of).collect();
            let bytes = own.iter().map(|mailbox| counted(mailbox)).sum();
            agree("a user's", (usage.mailboxes, usage.bytes), (own.len() as u64, bytes))?;
        }
        Ok(())
    }

    fn compare_everything(&mut self) -> Result<(), Stop> {
        for address in ADDRESSES {
            self.compare_info(address)?;
            let (store, model) = self.fetch(&Fetch::all(address));
            agree("all messages", store, model)?;
        }
        let info = self.store.get_mut().info();
        agree("mailboxes", info.mailboxes, self.model.mailboxes.len() as u64)?;
        agree("epoch", info.epoch, self.model.epoch)?;
        let logged = self.model.mailboxes.iter().filter(|m| m.policy.tier == Tier::Durable);
        agree("live bytes", info.live_bytes, logged.map(|mailbox| mailbox.bytes()).sum())
    }

    /// The end of a script: what is left must be the same now and after one more restart.
    pub fn finish(mut self) -> Result<(), Stop> {
        self.compare_everything()?;
        self.step(&Command::Kill)
    }
}

fn take_aim(model: &Model, address: &str, group: &str, aim: Aim) -> u64 {
    let Some(mailbox) = model.find(address) else { return 0 };
    let group = mailbox.groups.iter().find(|g| g.name == group);
    let pending = group.map_or(&[][..], |group| &group.deliveries);
    match aim {
        Aim::Pending(back) if !pending.is_empty() => {
            pending[pending.len() - 1 - back % pending.len()].msg_id
        }
        Aim::Pending(back) => mailbox.next_id.saturating_sub(back as u64),
        Aim::Any(back) => (mailbox.next_id + 1).saturating_sub(back),
    }
}
