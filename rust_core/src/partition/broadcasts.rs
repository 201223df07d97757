//! Broadcasts that are stored: told to those who listen once they are durable, and before that to nobody.
//!
//! Who begins to listen is first given what is stored, read in pieces as far as there is room, up to what was told
//! already; from then on it hears the rest as it is told. So everybody gets each of them once and in their order. Owns
//! what is yet to be told and how far those are who catch up. Must not know how bytes travel.

use std::collections::VecDeque;
use std::ops::Range;

use hashbrown::HashMap;

use crate::error::Result;
use crate::front::{Front, Outlet};
use crate::log::Lsn;
use crate::protocol::{BroadcastCommand, broadcast};
use crate::store::{BroadcastLimits, PushLimits, Store, StoredBroadcast};
use crate::time::Now;

type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// What is read at once.
const PIECE: PushLimits = PushLimits { max_msgs: 512, max_bytes: 64 << 10 };

/// What may be read and written in one round: then others have their turn.
const ROUND_BYTES: usize = 1 << 20;

/// About what a message takes besides headers and payload.
const LINE_BYTES: usize = 64;

/// How much may wait to be told: beyond, nothing more is asked for.
const MAX_BYTES: usize = 64 << 20;

/// How soon a read that failed is tried again.
const RETRY_MS: u64 = 250;

/// A broadcast on its way to all who listen.
#[derive(Debug)]
pub struct Told {
    /// The connection that tells it.
    pub cid: u64,
    /// Where.
    pub subject: Box<[u8]>,
    /// How long its headers are.
    pub headers: usize,
    /// Headers, payload and CRLF.
    pub body: Vec<u8>,
    msg_id: u64,
}

/// One who catches up.
#[derive(Debug)]
struct Reader {
    outlet: Outlet,
    /// The first broadcast that it was not given.
    next: u64,
    is_active: bool,
}

/// Stored broadcasts as they are written.
#[derive(Debug)]
struct Piece {
    /// It begins with the first broadcast from here on.
    from: u64,
    bytes: Vec<u8>,
    list: Vec<Stored>,
    more: bool,
}

#[derive(Debug)]
struct Stored {
    msg_id: u64,
    subject: Box<[u8]>,
    headers: usize,
    place: Range<usize>,
}

/// What became of a reader's turn.
enum Turn {
    /// It goes on.
    More,
    /// It goes on when its connection has room.
    Full,
    /// It hears from now on what is told.
    Over,
}

/// Broadcasts that are stored, and those who catch up with them.
#[derive(Debug)]
pub struct Broadcasts {
    limits: BroadcastLimits,
    /// What is stored and not told yet, each with the end of the log it waits for.
    pending: VecDeque<(Lsn, Told)>,
    bytes: usize,
    /// By the number that the subscription knows.
    readers: Map<u64, Reader>,
    active: VecDeque<u64>,
    /// Readers that wait for room, by connection.
    full: Map<u64, Vec<u64>>,
    /// When a read that failed is tried again, in ms of the monotonic clock.
    retry_ms: Option<u64>,
    /// What was read last in this round: most who catch up stand at the same place.
    piece: Option<Piece>,
}

impl Broadcasts {
    /// Nobody listens yet.
    pub fn new(limits: BroadcastLimits) -> Broadcasts {
        Broadcasts {
            limits,
            pending: VecDeque::new(),
            bytes: 0,
            readers: Map::default(),
            active: VecDeque::new(),
            full: Map::default(),
            retry_ms: None,
            piece: None,
        }
    }

    /// Stores a broadcast, which is told when that is durable.
    pub fn store(
        &mut self,
        store: &mut Store,
        cid: u64,
        command: &BroadcastCommand<'_>,
        now: Now,
    ) -> Result<StoredBroadcast> {
        let broadcast = command.broadcast();
        let stored = store.store_broadcast(&broadcast, &self.limits, now)?;
        if !stored.duplicate {
            let (headers, body) = command.told(&stored, now.wall_ms);
            let subject = broadcast.subject.as_bytes().into();
            let told = Told { cid, subject, headers, body, msg_id: stored.msg_id };
            self.bytes += told.bytes();
            self.pending.push_back((store.end(), told));
        }
        Ok(stored)
    }

    /// Whether more may be asked for.
    pub fn has_room(&self) -> bool {
        self.bytes < MAX_BYTES
    }

    /// Whether something is to be told once more of the log is durable.
    pub fn is_waiting_for_log(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The next broadcast that may be told, now that the log is durable up to `acknowledged`.
    pub fn next(&mut self, acknowledged: Lsn) -> Option<Told> {
        self.pending.front().filter(|(end, _)| *end <= acknowledged)?;
        let (_, told) = self.pending.pop_front()?;
        self.bytes -= told.bytes();
        Some(told)
    }

    /// Nothing beyond `acknowledged` will be durable.
    pub fn fail(&mut self, acknowledged: Lsn) {
        self.pending.retain(|(end, _)| *end <= acknowledged);
        self.bytes = self.pending.iter().map(|(_, told)| told.bytes()).sum();
    }

    /// A subscription that begins is to catch up, as this reader; false if nothing is stored.
    pub fn subscribe(&mut self, store: &mut Store, outlet: Outlet, now: Now) -> bool {
        if !store.has_broadcasts(&self.limits, now) {
            return false;
        }
        self.readers.insert(outlet.reader, Reader { outlet, next: 0, is_active: false });
        self.activate(outlet.reader);
        true
    }

    /// Whether this reader catches up.
    pub fn has(&self, reader: u64) -> bool {
        self.readers.contains_key(&reader)
    }

    /// How many catch up.
    pub fn readers(&self) -> usize {
        self.readers.len()
    }

    /// A subscription has ended.
    pub fn end(&mut self, reader: u64) {
        let Some(ended) = self.readers.remove(&reader) else { return };
        if let Some(full) = self.full.get_mut(&ended.outlet.cid) {
            full.retain(|other| *other != reader);
            if full.is_empty() {
                self.full.remove(&ended.outlet.cid);
            }
        }
    }

    /// A connection has room again.
    pub fn wake(&mut self, cid: u64) {
        for reader in self.full.remove(&cid).unwrap_or_default() {
            self.activate(reader);
        }
    }

    fn activate(&mut self, reader: u64) {
        if let Some(known) = self.readers.get_mut(&reader)
            && !std::mem::replace(&mut known.is_active, true)
        {
            self.active.push_back(reader);
        }
    }

    /// How long until somebody goes on who waits for nothing else.
    pub fn due_in_ms(&self, now: Now) -> Option<u64> {
        let wait = || self.retry_ms.map_or(0, |at_ms| at_ms.saturating_sub(now.mono_ms));
        (!self.active.is_empty()).then(wait)
    }

    /// Gives those who catch up more, as far as there is room and a round allows.
    pub fn go_on(&mut self, store: &mut Store, front: &mut Front, now: Now) {
        if self.due_in_ms(now) != Some(0) {
            return;
        }
        self.retry_ms = None;
        let told = self.pending.front().map_or(u64::MAX, |(_, told)| told.msg_id);
        let mut left = ROUND_BYTES;
        while left > 0
            && let Some(number) = self.active.pop_front()
        {
            let Some(mut reader) = self.readers.remove(&number) else { continue };
            left = left.saturating_sub(LINE_BYTES);
            match self.turn(&mut reader, told, store, front, &mut left, now) {
                Ok(Turn::More) => self.active.push_back(number),
                Ok(Turn::Full) => {
                    reader.is_active = false;
                    self.full.entry(reader.outlet.cid).or_default().push(number);
                    front.wait_for_room(reader.outlet.cid);
                }
                Ok(Turn::Over) => {
                    front.end_feed(&reader.outlet);
                    continue;
                }
                Err(_) => {
                    self.active.push_front(number);
                    self.retry_ms = Some(now.mono_ms.saturating_add(RETRY_MS));
                    left = 0;
                }
            }
            self.readers.insert(number, reader);
        }
        self.piece = None;
    }

    /// Gives a reader what is next, where nothing from `told` on was told.
    fn turn(
        &mut self,
        reader: &mut Reader,
        told: u64,
        store: &mut Store,
        front: &mut Front,
        left: &mut usize,
        now: Now,
    ) -> Result<Turn> {
        let Some(mut room) = front.room_at(&reader.outlet) else { return Ok(Turn::Over) };
        if self.piece.as_ref().is_none_or(|piece| piece.from != reader.next) {
            let piece = read(store, reader.next, now)?;
            *left = left.saturating_sub(piece.bytes.len());
            self.piece = Some(piece);
        }
        let Some(piece) = &self.piece else { return Ok(Turn::More) };
        for stored in &piece.list {
            if stored.msg_id >= told || room.messages == 0 {
                return Ok(Turn::Over);
            }
            if front.wants(&reader.outlet, &stored.subject) {
                if room.bytes == 0 {
                    return Ok(Turn::Full);
                }
                let body = &piece.bytes[stored.place.clone()];
                let message = std::iter::once((stored.headers, body));
                front.push(&reader.outlet, &stored.subject, message);
                let written = stored.place.len() + LINE_BYTES;
                room.bytes = room.bytes.saturating_sub(written);
                room.messages -= 1;
                *left = left.saturating_sub(written);
            }
            reader.next = stored.msg_id + 1;
        }
        Ok(if piece.more { Turn::More } else { Turn::Over })
    }

    /// Panics unless readers and lists of them agree. For tests.
    pub fn check_invariants(&self) {
        let bytes: usize = self.pending.iter().map(|(_, told)| told.bytes()).sum();
        assert_eq!(self.bytes, bytes, "bytes of broadcasts that are to be told");
        let order = self.pending.iter().map(|(end, told)| (*end, told.msg_id));
        assert!(order.is_sorted(), "order of broadcasts that are to be told");
        for (number, reader) in &self.readers {
            let full = self.full.get(&reader.outlet.cid);
            let waits = full.is_some_and(|full| full.contains(number));
            assert_eq!(reader.is_active, self.active.contains(number), "activity of a reader");
            assert_ne!(reader.is_active, waits, "a reader that nothing wakes");
        }
    }
}

impl Told {
    fn bytes(&self) -> usize {
        size_of::<Told>() + self.subject.len() + self.body.len()
    }
}

fn read(store: &mut Store, from: u64, now: Now) -> Result<Piece> {
    let ahead = store.broadcasts_from(from, PIECE, now)?;
    let bytes = Vec::with_capacity(ahead.batch.bytes() + 128 * ahead.batch.len());
    let mut piece = Piece { from, bytes, list: Vec::new(), more: ahead.more };
    for (meta, message) in ahead.batch.iter() {
        let start = piece.bytes.len();
        let headers = broadcast::write(&mut piece.bytes, &meta, &message);
        let (place, subject) = (start..piece.bytes.len(), message.tags.as_bytes().into());
        piece.list.push(Stored { msg_id: meta.msg_id, subject, headers, place });
    }
    Ok(piece)
}
