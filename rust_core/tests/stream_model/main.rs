//! Streams and their consumers beside a naive model: random publishes, pulls, acknowledgements, times, purges and
//! restarts. After every step each says the same of what is stored, to come and out, and of what is given next.
//!
//! `MQ9_TEST_SCRIPTS` sets the number of scripts.
#![allow(clippy::unwrap_used)]

mod model;
mod power_cuts;

use std::sync::Arc;

use mq9_core::consumer::ConsumerPolicy;
use mq9_core::disk::Disk;
use mq9_core::mailbox::{Level, Policy};
use mq9_core::store::{
    Acked, ConsumerAck, ConsumerKey, Delivery, NewConsumer, NewStream, Options, Publish, Store,
    StreamKey, StreamPurge,
};
use mq9_core::time::Now;
use mq9_sim::SimDisk;

use model::{Limits, Model};

const START: Now = Now { wall_ms: 1_700_000_000_000, mono_ms: 1_000 };
const SUBJECTS: [&str; 5] = ["a.x", "a.y", "b.x", "b.y", "c"];
const STEPS: usize = 220;
const ACK_WAIT_MS: u64 = 1_000;

struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % end
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

struct Run {
    dice: Dice,
    disk: SimDisk,
    store: Store,
    now: Now,
    model: Model,
    /// The levels that messages have.
    levels: &'static [u8],
    /// What was done last, by its dice.
    kind: u64,
}

fn options() -> Options {
    Options {
        segment_bytes: 4096,
        allocate_bytes: 4096,
        checkpoint_bytes: 3_000,
        ..Options::default()
    }
}

fn open(disk: &SimDisk, now: Now) -> Store {
    Store::open(Arc::new(disk.clone()) as Arc<dyn Disk>, options(), 7, now).unwrap()
}

impl Run {
    fn new(seed: u64, levels: &'static [u8]) -> Run {
        let mut dice = Dice(seed);
        let disk = SimDisk::new();
        let mut store = open(&disk, START);
        let kind = if levels.len() > 1 { 0 } else { dice.below(3) };
        let (is_work_queue, interest) = (kind == 0, kind == 1);
        let limits = Limits {
            is_work_queue,
            interest,
            max_msgs: dice.one_of(&[0, 0, 30]),
            max_age_ms: dice.one_of(&[0, 0, 5_000]),
            max_ack_pending: dice.one_of(&[0, 3, 12]),
            max_deliver: if interest { dice.one_of(&[0, 1, 2]) } else { dice.one_of(&[0, 0, 2]) },
            ack_wait_ms: ACK_WAIT_MS,
        };
        let policy = Policy {
            work_queue: is_work_queue,
            interest,
            max_msgs: limits.max_msgs,
            max_age_ms: limits.max_age_ms,
            ..Policy::default()
        };
        let new = NewStream { name: "S", config: "{}", policy };
        store.create_stream(&new, START).unwrap();
        let filters: &[&[&str]] = match (dice.below(2), is_work_queue) {
            (0, _) => &[&[]],
            (_, true) => &[&["a.*"], &["b.x", "c"]],
            (_, false) => &[&[], &["a.*"], &["*.x", "c"]],
        };
        let mut model = Model::new(limits);
        for (ix, filters) in filters.iter().enumerate() {
            model.add_consumer(&format!("c{ix}"), filters);
        }
        let mut run = Run { dice, disk, store, now: START, model, levels, kind: 0 };
        for ix in 0..filters.len() {
            run.set_consumer(ix);
        }
        run
    }

    fn stream(&self) -> StreamKey {
        self.store.find_stream("S").unwrap()
    }

    fn consumer(&self, ix: usize) -> ConsumerKey {
        let name = &self.model.consumers[ix].name;
        self.store.find_consumer(self.stream(), name).unwrap()
    }

    fn set_consumer(&mut self, ix: usize) {
        let (consumer, limits) = (&self.model.consumers[ix], &self.model.limits);
        let policy = ConsumerPolicy {
            ack_wait_ms: limits.ack_wait_ms,
            max_ack_pending: limits.max_ack_pending,
            max_deliver: limits.max_deliver,
            filters: consumer.filters.iter().map(|filter| (*filter).into()).collect(),
            ..ConsumerPolicy::default()
        };
        let (name, config) = (consumer.name.as_str(), "{}");
        let new = NewConsumer { name, policy, config, next: 0, early: Vec::new() };
        self.store.set_consumer(self.stream(), &new, self.now).unwrap();
    }

    fn publish(&mut self) {
        let (subject, level) = (self.dice.one_of(&SUBJECTS), self.dice.one_of(self.levels));
        let payload = [b'x'; 40];
        // Some ids come a second time.
        let id = match self.dice.below(3) {
            0 => format!("id-{}", self.dice.below(30)),
            _ => String::new(),
        };
        let publish = Publish {
            subject,
            level: Level::new(level).unwrap(),
            payload: &payload,
            id: &id,
            ..Publish::default()
        };
        let stream = self.stream();
        let found = self.store.publish_to(stream, &publish, self.now).unwrap();
        let expected = self.model.publish(subject, level, &id, self.now);
        assert_eq!((found.seq, found.duplicate), expected, "the PubAck");
    }

    fn pull(&mut self) {
        let ix = self.dice.below(self.model.consumers.len() as u64) as usize;
        let (key, most) = (self.consumer(ix), self.dice.one_of(&[1, 2, 5, 100]));
        let offers = self.store.offers(key, most, self.now).unwrap();
        let given: Vec<_> = offers.iter().map(|offer| (offer.msg_id(), offer.count)).collect();
        let first = self.model.consumers[ix].given + 1;
        let expected = self.model.pull(ix, most, self.now);
        assert_eq!(given, expected, "c{ix} was given, of {most}");
        let (number, _) = self.store.give(key, &offers, self.now).unwrap();
        assert_eq!(number, first, "the number of the first delivery");
    }

    fn say(&mut self) {
        let ix = self.dice.below(self.model.consumers.len() as u64) as usize;
        let key = self.consumer(ix);
        let consumer = &self.model.consumers[ix];
        let mut known: Vec<u64> = consumer.out.keys().copied().collect();
        if known.is_empty() || self.dice.below(8) == 0 {
            // Whatever it is: done with, given up, or never given.
            known = (0..self.model.next_id + 2).collect();
        }
        let msg_id = self.dice.one_of(&known);
        let ack = match self.dice.below(10) {
            0..=4 => ConsumerAck::Done,
            5 => ConsumerAck::Return(None),
            6 => ConsumerAck::Return(Some(self.dice.one_of(&[300, 2_500]))),
            7 => ConsumerAck::Progress,
            _ => ConsumerAck::Terminate("no".to_owned()),
        };
        let of = Delivery { msg_id, number: 1, count: u32::MAX, ..Delivery::default() };
        let acked = self.store.consumer_ack(key, &of, &ack, self.now).unwrap();
        let was_given = self.model.say(ix, msg_id, &ack, self.now);
        if let Some(was_given) = was_given {
            let expected = if was_given { Acked::Heard } else { Acked::NeverGiven };
            assert_eq!(acked, expected, "c{ix} says {ack:?} of {msg_id}");
        }
    }

    fn purge(&mut self) {
        let stream = self.stream();
        match self.dice.below(4) {
            0 => {
                let msg_id = self.dice.below(self.model.next_id + 1);
                let found = self.store.remove_from_stream(stream, msg_id, self.now).unwrap();
                assert_eq!(found, self.model.remove(msg_id), "{msg_id} was there");
            }
            kind => {
                let filter = [None, Some("a.*"), None][kind as usize - 1];
                let before = (kind == 3).then(|| self.dice.below(self.model.next_id + 1));
                let purge = StreamPurge { filter, before, keep: 0 };
                let mut purging = self.store.begin_purge(stream, purge).unwrap();
                while self.store.purge_some(&mut purging, self.now).unwrap() {}
                assert_eq!(purging.purged, self.model.purge(filter, before), "purged");
            }
        }
    }

    /// Where only interest keeps messages: a consumer goes, or wants less.
    fn leave(&mut self) {
        let last = self.model.consumers.len() - 1;
        let narrower: &[&str] = match self.model.consumers[last].filters[..] {
            [] => &["a.*"],
            ["*.x", "c"] => &["c"],
            _ => return,
        };
        if last > 0 && self.dice.below(2) == 0 {
            let key = self.consumer(last);
            self.store.remove_consumer(key, false, self.now).unwrap();
            self.model.remove_last_consumer();
        } else {
            self.model.narrow(last, narrower);
            self.set_consumer(last);
        }
        while self.store.tick(self.now) || self.store.sleep_ms(self.now) == Some(0) {}
        self.model.tick(self.now);
    }

    fn wait(&mut self) {
        let ms = self.dice.one_of(&[1, 200, 700, 1_000, 3_000]);
        for _ in 0..ms {
            self.now = Now { wall_ms: self.now.wall_ms + 1, mono_ms: self.now.mono_ms + 1 };
            let due = self.store.sleep_ms(self.now) == Some(0) || self.model.is_due(self.now);
            if due {
                while self.store.tick(self.now) || self.store.sleep_ms(self.now) == Some(0) {}
                self.model.tick(self.now);
            }
        }
    }

    fn reopen(&mut self) {
        match self.dice.below(3) {
            0 => std::mem::replace(&mut self.store, open(&SimDisk::new(), START)).close().unwrap(),
            1 => {
                self.store.checkpoint().unwrap();
                self.store.sync().unwrap();
            }
            _ => {
                self.store.sync().unwrap();
                self.disk = self.disk.crash_strict();
            }
        }
        // Another store in its place first: the one before lets go of its files.
        self.store = open(&SimDisk::new(), START);
        self.store = open(&self.disk, self.now);
        self.model.reopen(self.now);
        while self.store.tick(self.now) || self.store.sleep_ms(self.now) == Some(0) {}
        self.model.tick(self.now);
    }

    fn step(&mut self) {
        self.kind = self.dice.below(100);
        match self.kind {
            0..=34 => self.publish(),
            35..=57 => self.pull(),
            58..=85 => self.say(),
            86..=93 => self.wait(),
            94..=95 => self.purge(),
            96 if self.model.limits.interest => self.leave(),
            _ => self.reopen(),
        }
        self.check();
    }

    fn check(&mut self) {
        self.store.check_invariants();
        let info = self.store.stream_info(self.stream()).unwrap();
        let model = &self.model;
        assert_eq!(info.messages, model.stored.len() as u64, "messages");
        assert_eq!(info.last_seq, model.next_id, "the last number");
        let first = model.stored.keys().next().map(|msg_id| msg_id + 1);
        let none = if model.next_id == 0 { 0 } else { model.next_id + 1 };
        assert_eq!(info.first_seq, first.unwrap_or(none), "the first number");
        assert_eq!(self.store.stream_subjects(self.stream(), ">"), model.subjects(), "subjects");
        for (ix, consumer) in model.consumers.iter().enumerate() {
            let info = self.store.consumer_info(self.consumer(ix)).unwrap();
            let name = &consumer.name;
            assert_eq!(info.pending, model.to_come(ix).len() as u64, "to come for {name}");
            assert_eq!(info.ack_pending, consumer.out.len() as u64, "out with {name}");
            assert_eq!(info.redelivered, consumer.redelivered(), "more than once to {name}");
            assert_eq!(info.delivered.consumer, consumer.given, "deliveries to {name}");
            assert_eq!(info.delivered.stream, consumer.highest, "the last given to {name}");
            model.check_floor(ix, info.floor);
        }
    }
}

fn play(levels: &'static [u8], reopening: bool) {
    let asked = std::env::var("MQ9_TEST_SCRIPTS").ok().and_then(|number| number.parse().ok());
    for seed in 0..asked.unwrap_or(if reopening { 60 } else { 250 }) {
        let mut run = Run::new(seed, levels);
        for step in 0..STEPS {
            let said = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                run.step();
                if reopening {
                    run.reopen();
                    run.check();
                }
            }));
            let (kind, limits) = (run.kind, run.model.limits);
            assert!(said.is_ok(), "script {seed}, step {step} ({kind}), {limits:?}");
        }
    }
}

#[test]
fn a_stream_and_its_consumers_are_as_the_model_says() {
    play(&[5], false);
}

#[test]
fn a_work_queue_with_priorities_is_as_the_model_says() {
    play(&[1, 5, 5, 5, 9], false);
}

#[test]
fn a_restart_after_every_step_changes_nothing() {
    play(&[5], true);
    play(&[1, 5, 5, 5, 9], true);
}
