//! An inbox on a disk that loses power at every operation: what was acknowledged comes, what was read does not come
//! again, and a `msg_id` that was read is nobody else's.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mq9_core::disk::Disk;
use mq9_core::error::Result;
use mq9_core::log::Lsn;
use mq9_core::mailbox::Level;
use mq9_core::store::{
    LevelSet, MailboxRef, NewMailbox, PushLimits, Reading, Send, Store, maintain,
};
use mq9_core::time::Now;
use mq9_sim::SimDisk;

use crate::world::{OPTIONS, START, open};

const SOME: PushLimits = PushLimits { max_msgs: 5, max_bytes: 64 << 10 };
const CONN: u64 = 7;

/// How far the log must be durable for a client to be told, unless it failed, and whether the client was told.
type Promised = (Option<Lsn>, bool);

/// A store with one inbox, and what its clients know.
struct Inbox {
    store: RefCell<Store>,
    disk: Arc<dyn Disk>,
    now: Now,
    sent: usize,
    /// By payload: whether it was promised, and whether it is lost with the process.
    sends: BTreeMap<String, (Promised, bool)>,
    /// Payloads that were read, or taken out: perhaps, and for sure.
    done: BTreeMap<String, Promised>,
    /// Payloads that were read at once: all of them are, or none.
    together: Vec<Vec<String>>,
    /// Payloads that are out with the connection.
    out: Vec<(u64, String)>,
    /// The first `msg_id` that the connection has not seen.
    unseen: u64,
    is_created: bool,
}

impl Inbox {
    fn open(disk: &SimDisk) -> Result<Inbox> {
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let store = RefCell::new(open(&disk, OPTIONS, START)?);
        let (sends, done) = (BTreeMap::new(), BTreeMap::new());
        let (out, together) = (Vec::new(), Vec::new());
        Ok(Inbox {
            store,
            disk,
            now: START,
            sent: 0,
            sends,
            done,
            together,
            out,
            unseen: 0,
            is_created: false,
        })
    }

    fn watched(&mut self) -> Result<MailboxRef> {
        self.store.get_mut().watch("a", self.now)
    }

    /// Notes which promises hold by now.
    fn note(&mut self) {
        let reached = self.store.get_mut().acknowledged();
        let promises = self.sends.values_mut().map(|(promised, _)| promised);
        for (at, promised) in promises.chain(self.done.values_mut()) {
            *promised |= at.is_some_and(|at| at <= reached);
        }
    }

    fn send(&mut self, level: Level, memory: bool) -> Result<()> {
        let payload = format!("message-{:03}-{}", self.sent, "x".repeat(60));
        self.sent += 1;
        let send = Send { level, memory, ..Send::new(payload.as_bytes()) };
        let sent = self.store.get_mut().send("a", &send, self.now).map(drop);
        let end = self.store.get_mut().end();
        let at = sent.is_ok().then_some(end);
        self.sends.insert(payload, ((at, false), memory));
        sent
    }

    /// Gives the connection some messages, as they are written to it; with how many records.
    fn give(&mut self, limits: PushLimits) -> Result<usize> {
        let MailboxRef { slot, .. } = self.watched()?;
        let store = self.store.get_mut();
        let ahead = store.look_ahead(slot, Reading::Inbox, LevelSet::ALL, limits, self.now)?;
        let given: Vec<_> = ahead.batch.iter().map(|(m, _)| (m.level, m.msg_id)).collect();
        let payloads = ahead.batch.iter().map(|(_, m)| text(m.payload));
        let out: Vec<_> = given.iter().map(|(_, id)| *id).zip(payloads).collect();
        for (msg_id, payload) in &out {
            self.unseen = self.unseen.max(msg_id + 1);
            assert!(!self.done.contains_key(payload), "{payload} was read and comes again");
            let is_out = self.out.iter().any(|(_, of)| of == payload);
            assert!(!is_out, "{payload} comes twice at once");
        }
        let (mut rest, mut out, mut records) = (&given[..], out.into_iter(), 0);
        while !rest.is_empty() {
            let count = store.inbox_given(slot, CONN, rest, self.now)?;
            self.out.extend(out.by_ref().take(count));
            rest = &rest[count..];
            records += 1;
        }
        Ok(records)
    }

    /// The connection has answered for what it was given first.
    fn read(&mut self, count: usize) -> Result<()> {
        let MailboxRef { slot, number } = self.watched()?;
        let count = count.min(self.out.len());
        let read: Vec<_> = self.out.drain(..count).collect();
        let msg_ids: Vec<u64> = read.iter().map(|(msg_id, _)| *msg_id).collect();
        let outcome = self.store.get_mut().inbox_read(slot, number, &msg_ids, self.now);
        self.is_done(read.into_iter().map(|(_, payload)| payload), &outcome);
        outcome
    }

    fn is_done(&mut self, payloads: impl Iterator<Item = String>, outcome: &Result<()>) {
        let end = self.store.get_mut().end();
        let at = outcome.is_ok().then_some(end);
        self.done.extend(payloads.map(|payload| (payload, (at, false))));
    }

    /// Reads without a subscription.
    fn unread(&mut self) -> Result<()> {
        let (of, _, batch) = self.store.get_mut().unread_of("a", SOME, self.now)?;
        let given: Vec<_> = batch.iter().map(|(meta, _)| (meta.level, meta.msg_id)).collect();
        let payloads: Vec<String> = batch.iter().map(|(_, m)| text(m.payload)).collect();
        for payload in &payloads {
            assert!(!self.done.contains_key(payload), "{payload} was read and comes again");
        }
        let outcome = self.store.get_mut().take_unread(of, &given, self.now);
        self.is_done(payloads.iter().cloned(), &outcome);
        self.together.push(payloads);
        outcome
    }

    fn delete_first_out(&mut self) -> Result<()> {
        if self.out.is_empty() {
            return Ok(());
        }
        let (msg_id, payload) = self.out.remove(0);
        let outcome = self.store.get_mut().delete("a", msg_id, self.now);
        self.is_done(std::iter::once(payload), &outcome);
        outcome
    }

    /// Another process on the same disk.
    fn kill(&mut self) -> Result<()> {
        self.store.get_mut().sync()?;
        self.note();
        self.out.clear();
        self.now.wall_ms += 10;
        let disk = Arc::clone(&self.disk);
        // Unlocks the disk first.
        let other: Arc<dyn Disk> = Arc::new(SimDisk::new());
        drop(self.store.replace(open(&other, OPTIONS, self.now)?));
        self.store.replace(open(&disk, OPTIONS, self.now)?);
        let lost: Vec<String> =
            self.sends.iter().filter(|(_, (_, memory))| *memory).map(|(p, _)| p.clone()).collect();
        self.is_done(lost.into_iter(), &Ok(()));
        Ok(())
    }

    fn play(&mut self) -> Result<()> {
        let new = NewMailbox { address: "a", ..NewMailbox::default() };
        self.store.get_mut().create_mailbox(&new, self.now)?;
        self.store.get_mut().sync()?;
        self.is_created = true;
        for round in 0..10 {
            self.now.wall_ms += 10;
            self.now.mono_ms += 10;
            for nth in 0..6 {
                let level = match nth {
                    1 => Level::CRITICAL,
                    5 => Level::NOTIFY,
                    _ => Level::NORMAL,
                };
                self.send(level, nth == 5)?;
            }
            if round % 3 != 1 {
                self.step(Store::sync)?;
            }
            self.give(SOME)?;
            self.step(Store::flush)?;
            self.read(3)?;
            if round % 2 == 0 {
                self.step(Store::sync)?;
            }
            self.give(SOME)?;
            self.read(1)?;
            match round {
                1 => self.unread()?,
                2 | 7 => self.delete_first_out()?,
                3 => {
                    self.store.get_mut().disconnect(CONN, self.now);
                    self.out.clear();
                }
                4 => self.step(Store::checkpoint)?,
                5 => self.kill()?,
                6 => self.read(usize::MAX)?,
                _ => {}
            }
            let now = self.now;
            while maintain(&self.store, || now)? {}
            self.note();
        }
        self.step(Store::sync)
    }

    /// Messages between which others have gone, in more runs than one record has room for.
    fn play_scattered(&mut self) -> Result<()> {
        let new = NewMailbox { address: "a", ..NewMailbox::default() };
        self.store.get_mut().create_mailbox(&new, self.now)?;
        self.step(Store::sync)?;
        self.is_created = true;
        for nth in 0..300 {
            self.send(Level::NORMAL, false)?;
            if nth % 2 == 1 {
                let payload = self.sends.keys().nth(nth).cloned();
                let outcome = self.store.get_mut().delete("a", nth as u64, self.now);
                self.is_done(payload.into_iter(), &outcome);
                outcome?;
            }
        }
        self.step(Store::sync)?;
        let all = PushLimits { max_msgs: 512, ..SOME };
        assert_eq!(self.give(all)?, 2, "records of what is given");
        assert_eq!(self.out.len(), 150);
        self.step(Store::flush)?;
        self.read(140)?;
        self.step(Store::sync)?;
        self.kill()?;
        self.give(all)?;
        assert_eq!(self.out.len(), 10, "what was not read comes again");
        self.read(usize::MAX)?;
        self.step(Store::sync)
    }

    fn step(&mut self, step: impl FnOnce(&mut Store) -> Result<()>) -> Result<()> {
        let outcome = step(self.store.get_mut());
        self.store.get_mut().check_invariants();
        self.note();
        outcome
    }

    /// Everything that must hold of what a power cut has left.
    fn check(&self, crashed: &SimDisk) {
        let now = Now { wall_ms: self.now.wall_ms + 1, mono_ms: self.now.mono_ms + 1 };
        let reopen = || open(&(Arc::new(crashed.clone()) as Arc<dyn Disk>), OPTIONS, now).unwrap();
        let mut store = reopen();
        if store.mailbox("a", now).is_err() {
            assert!(!self.is_created, "the mailbox is lost");
            return;
        }
        // What comes now gets a number that nobody has read.
        let new = Send::new(b"new");
        let id = store.send("a", &new, now).unwrap().unwrap();
        assert!(id >= self.unseen, "{id} was another message for somebody");
        let came = all_unread(&mut store, now);
        let mut seen = BTreeSet::new();
        for payload in &came {
            assert!(seen.insert(payload.as_str()), "{payload} comes twice");
            let known = self.sends.contains_key(payload) || payload == "new";
            assert!(known, "{payload} was never sent");
            let read = self.done.get(payload).is_some_and(|(_, promised)| *promised);
            assert!(!read, "{payload} was read and comes again");
        }
        assert!(seen.contains("new"), "a new message is passed over");
        for read in &self.together {
            let durable = |payload: &&String| {
                self.sends.get(*payload).is_some_and(|((_, promised), memory)| *promised && !memory)
            };
            let mut came = read.iter().filter(durable).map(|payload| seen.contains(&**payload));
            let first = came.next();
            assert!(came.all(|it| Some(it) == first), "of {read:?} some are read");
        }
        for (payload, ((_, promised), memory)) in &self.sends {
            let must_come = *promised && !memory && !self.done.contains_key(payload);
            assert!(!must_come || seen.contains(payload.as_str()), "{payload} is lost");
        }
        store.sync().unwrap();
        drop(store);
        let again = crashed.crash_strict();
        let mut store = open(&(Arc::new(again) as Arc<dyn Disk>), OPTIONS, now).unwrap();
        assert_eq!(all_unread(&mut store, now), [""; 0], "after all was read");
    }

    fn promises(&self) -> (usize, usize) {
        let sent = self.sends.values().filter(|((_, promised), _)| *promised).count();
        (sent, self.done.values().filter(|(_, promised)| *promised).count())
    }
}

fn text(payload: &[u8]) -> String {
    String::from_utf8_lossy(payload).into_owned()
}

fn all_unread(store: &mut Store, now: Now) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        let (of, _, batch) = store.unread_of("a", SOME, now).unwrap();
        if batch.is_empty() {
            return all;
        }
        let given: Vec<_> = batch.iter().map(|(meta, _)| (meta.level, meta.msg_id)).collect();
        store.take_unread(of, &given, now).unwrap();
        all.extend(batch.iter().map(|(_, m)| text(m.payload)));
    }
}

#[test]
fn a_power_cut_at_any_operation_loses_nothing_of_an_inbox_and_gives_nothing_again_that_was_read() {
    let (sent, read) = cut_at_every_operation(Inbox::play);
    assert!(sent == 60 && read > 30 && read < 60, "{sent} sent, {read} read");
}

#[test]
fn a_power_cut_loses_and_doubles_nothing_of_an_inbox_whose_messages_take_several_records() {
    let (sent, read) = cut_at_every_operation(Inbox::play_scattered);
    assert_eq!((sent, read), (300, 300));
}

/// How much was promised when there was no cut.
fn cut_at_every_operation(play: impl Fn(&mut Inbox) -> Result<()>) -> (usize, usize) {
    let whole = SimDisk::new();
    let mut inbox = Inbox::open(&whole).unwrap();
    play(&mut inbox).unwrap();
    let promises = inbox.promises();
    assert!(whole.ops() > 100, "only {} operations", whole.ops());
    for cut in 1..=whole.ops() {
        let disk = SimDisk::new();
        disk.cut_at(cut);
        let Ok(mut inbox) = Inbox::open(&disk) else { continue };
        assert!(play(&mut inbox).is_err() || disk.is_cut(), "cut at {cut}");
        inbox.note();
        let fixed = [("strict", disk.crash_strict()), ("lucky", disk.crash_lucky())];
        let random = (0..4).map(|seed| ("some", disk.crash(cut * 10 + seed)));
        for (how, crashed) in fixed.into_iter().chain(random) {
            let check = std::panic::AssertUnwindSafe(|| inbox.check(&crashed));
            assert!(std::panic::catch_unwind(check).is_ok(), "cut at {cut}, {how}");
        }
    }
    promises
}
