//! Subscribers that a server pushes to, each on a connection of its own. Either all of what is stored is
//! replayed to each of them, or messages are sent at an even pace and the time until each subscriber has
//! each is taken. Every message must come to everybody, once and in order.

mod source;

use std::time::{Duration, Instant};

use source::{Kind, Source};

use crate::arguments::Arguments;
use crate::connection::{Chunk, Connection};
use crate::failure::Failure;
use crate::latency::Latencies;
use crate::load::{Load, Measured};
use crate::pace::{self, Pace};
use crate::poller::Poller;
use crate::template::TOKEN;

/// Subscriptions are there when so much time has passed without anything to replay.
const SETTLE: Duration = Duration::from_millis(200);

struct Subscriber {
    connection: Connection,
    source: Source,
}

struct Push {
    subscribers: Vec<Subscriber>,
    poller: Poller,
    chunk: Chunk,
}

/// Runs the scenario and returns its line of JSON.
pub fn run(mut arguments: Arguments) -> Result<String, Failure> {
    let load = Load::take(&mut arguments, TOKEN)?;
    let subscribers = arguments.number("subscribers", 1, 1, 10_000)?;
    let stored = arguments.number("stored", 0, 0, usize::MAX)? as u64;
    let from: String = arguments.optional("from")?.unwrap_or_default();
    let name: String = arguments.optional("name")?.unwrap_or_else(|| "bench".to_owned());
    let rate = pace::take(&mut arguments)?;
    arguments.finish()?;
    let kind = Kind::parse(&from)?;
    let mut push = Push {
        subscribers: Vec::with_capacity(subscribers),
        poller: load.poller(subscribers + 1)?,
        chunk: Chunk::new(),
    };
    for number in 0..subscribers {
        let source = Source::new(kind, &name, number);
        let connection = source.open(&load.server)?;
        push.poller.add(&connection, number, false)?;
        push.subscribers.push(Subscriber { connection, source });
    }
    let meter = load.meter()?;
    push.subscribe()?;
    let mut latencies = Latencies::default();
    let measured = match rate {
        None => {
            push.replay(stored)?;
            Measured { messages: stored * subscribers as u64, usage: meter.stop()? }
        }
        Some(rate) => {
            push.replay(stored)?;
            push.settle(stored)?;
            let mut sender = kind.sender(&load.server)?;
            push.poller.add(&sender, subscribers, false)?;
            let before = (load.warmup().as_secs_f64() * rate) as u64;
            let sent = push.live(&mut sender, kind, &name, &load, rate, stored, before, None)?;
            let meter = load.meter()?;
            let count = (load.duration().as_secs_f64() * rate).ceil() as u64;
            let first = stored + sent;
            let heard = Some(&mut latencies);
            let sent = push.live(&mut sender, kind, &name, &load, rate, first, count, heard)?;
            Measured { messages: sent * subscribers as u64, usage: meter.stop()? }
        }
    };
    let more = [
        ("from", format!("{from:?}")),
        ("subscribers", subscribers.to_string()),
        ("stored", stored.to_string()),
        ("latency_us", latencies.json()),
    ];
    Ok(measured.json("push", &load, &more))
}

impl Push {
    fn subscribe(&mut self) -> Result<(), Failure> {
        for Subscriber { connection, source } in &mut self.subscribers {
            source.subscribe(connection.queue());
            if !connection.flush()? {
                return Err(Failure::Server("takes no subscriptions".to_owned()));
            }
        }
        Ok(())
    }

    /// Returns when each has all that is stored.
    fn replay(&mut self, stored: u64) -> Result<(), Failure> {
        let mut missing = if stored == 0 { 0 } else { self.subscribers.len() };
        while missing > 0 {
            missing -= self.step(None, |_, next| next == stored)?;
        }
        Ok(())
    }

    /// Nothing more may come than was stored.
    fn settle(&mut self, stored: u64) -> Result<(), Failure> {
        let until = Instant::now() + SETTLE;
        let mut ready = Vec::new();
        while Instant::now() < until {
            self.poller.wait_until(until, &mut ready)?;
            for event in &ready {
                self.receive(event.number, &mut |_, _| ())?;
            }
        }
        match self.subscribers.iter().find(|each| each.source.next() != stored) {
            Some(each) => Err(Failure::Server(format!("pushed {} messages", each.source.next()))),
            None => Ok(()),
        }
    }

    /// Sends so many messages at a pace; each is numbered on from `first`. Returns when all have come.
    #[expect(clippy::too_many_arguments, reason = "one call for the warm-up, one that is measured")]
    fn live(
        &mut self,
        sender: &mut Connection,
        kind: Kind,
        name: &str,
        load: &Load,
        rate: f64,
        first: u64,
        count: u64,
        mut latencies: Option<&mut Latencies>,
    ) -> Result<u64, Failure> {
        let pace = Pace::new(rate, Instant::now());
        let mut sent_at: Vec<Instant> = Vec::with_capacity(count as usize);
        let all = count * self.subscribers.len() as u64;
        let mut ready = Vec::new();
        let (mut arrived, mut last) = (0, Instant::now());
        while arrived < all {
            while (sent_at.len() as u64) < count && pace.due(sent_at.len() as u64) <= Instant::now()
            {
                let number = first + sent_at.len() as u64;
                kind.message(sender.queue(), name, number, load.size);
                sent_at.push(Instant::now());
                if !sender.flush()? {
                    return Err(Failure::Server("takes no messages".to_owned()));
                }
            }
            let next = pace.due(sent_at.len() as u64);
            let until = if (sent_at.len() as u64) < count { next } else { Instant::now() + SETTLE };
            if self.poller.wait_until(until, &mut ready)? {
                last = Instant::now();
            }
            self.poller.check_silence(last.elapsed(), || format!("{arrived} of {all} came"))?;
            for event in &ready {
                if event.number == self.subscribers.len() {
                    kind.receive_answer(sender, &mut self.chunk)?;
                    continue;
                }
                self.receive(event.number, &mut |number, _| {
                    arrived += 1;
                    let sent = number.checked_sub(first).and_then(|at| sent_at.get(at as usize));
                    if let (Some(latencies), Some(&sent)) = (latencies.as_deref_mut(), sent) {
                        latencies.since(sent);
                    }
                })?;
            }
        }
        Ok(count)
    }

    /// Waits for something; how many subscribers have now come to what `is_complete` says.
    fn step(
        &mut self,
        sender: Option<usize>,
        is_complete: impl Fn(u64, u64) -> bool,
    ) -> Result<usize, Failure> {
        let mut ready = Vec::new();
        let Self { subscribers, poller, .. } = self;
        poller.wait(&mut ready, || {
            let least = subscribers.iter().map(|each| each.source.next()).min().unwrap_or_default();
            format!("a subscriber has {least} messages")
        })?;
        let mut complete = 0;
        for event in &ready {
            if Some(event.number) != sender {
                self.receive(event.number, &mut |number, next| {
                    complete += usize::from(is_complete(number, next));
                })?;
            }
        }
        Ok(complete)
    }

    fn receive(&mut self, number: usize, on: &mut dyn FnMut(u64, u64)) -> Result<(), Failure> {
        let Some(Subscriber { connection, source }) = self.subscribers.get_mut(number) else {
            return Ok(());
        };
        source.receive(connection, &mut self.chunk, on)?;
        let flushed = connection.flush()?;
        self.poller.change(&*connection, number, !flushed)
    }
}
