//! One turn of a feed: reads a piece, gives each message to a member that has room, and decides what to wait for.

use std::ops::Range;

use super::Pushes;
use super::conn::Out;
use super::feed::{Feed, FeedId, Kind};
use super::members::State;
use crate::error::Result;
use crate::front::Front;
use crate::mailbox::{LEVELS, Level};
use crate::protocol::push;
use crate::store::{LevelSet, PushLimits, Reading, SlotIx, Store};
use crate::time::Now;

/// What is read at once.
const PIECE: PushLimits = PushLimits { max_msgs: 512, max_bytes: 64 << 10 };

/// About what a message takes besides headers and payload.
const LINE_BYTES: usize = 64;

/// What a turn costs at least, and one that takes over what a member has left.
const TURN_BYTES: usize = 256;
const TAKEN_OVER_BYTES: usize = 64 << 10;

/// Messages as they are written, and whether there are more.
#[derive(Debug, Default)]
struct Piece {
    bytes: Vec<u8>,
    /// Level, `msg_id`, length of the headers, and where headers, payload and CRLF lie.
    list: Vec<(Level, u64, usize, Range<usize>)>,
    more: bool,
    waits: bool,
    /// Per level, where it was read from.
    from: [u64; LEVELS],
}

/// What was read for one feed, for others that stand at the same place.
#[derive(Debug)]
pub(super) struct Shared {
    slot: SlotIx,
    levels: LevelSet,
    piece: Piece,
    /// Per level, the first that was read. From here back to where it was read from there is nothing, so all who stand
    /// in between stand at the same place.
    first: [u64; LEVELS],
}

impl Shared {
    fn new(slot: SlotIx, levels: LevelSet, piece: Piece) -> Shared {
        let mut first = [u64::MAX; LEVELS];
        for (level, msg_id, ..) in piece.list.iter().rev() {
            first[level.index()] = *msg_id;
        }
        Shared { slot, levels, piece, first }
    }

    /// Whether one who stands there would read the same.
    fn is_for(&self, slot: SlotIx, levels: LevelSet, cursors: &[u64; LEVELS]) -> bool {
        let holds = |at| (self.piece.from[at]..=self.first[at]).contains(&cursors[at]);
        (self.slot, self.levels) == (slot, levels)
            && (0..LEVELS).all(|at| !levels.has_index(at) || holds(at))
    }
}

impl Pushes {
    /// Gives a feed its turn; what that cost, in bytes that could have been written.
    pub(super) fn turn(
        &mut self,
        id: FeedId,
        store: &mut Store,
        front: &mut Front,
        now: Now,
    ) -> usize {
        let Some(mut feed) = self.feeds.remove(&id) else { return 0 };
        feed.is_active = false;
        let cost = if feed.take_over(store) {
            self.take_turn(id, &mut feed, store, front, now)
        } else {
            // The rest comes in turns of its own: nothing else may be given before it.
            feed.is_active = true;
            self.active.push_back(id);
            TAKEN_OVER_BYTES
        };
        self.work.members += feed.members.take_looked();
        self.feeds.insert(id, feed);
        cost.max(TURN_BYTES)
    }

    fn take_turn(
        &mut self,
        id: FeedId,
        feed: &mut Feed,
        store: &mut Store,
        front: &mut Front,
        now: Now,
    ) -> usize {
        self.work.turns += 1;
        let mut dry = Vec::new();
        let wanted = feed.members.wanted();
        if self.taker(feed, wanted, front, &mut dry).is_none() {
            self.rest(id, feed, dry, front);
            return 0;
        }
        let levels = feed.members.wanted();
        let Ok(piece) = self.read(feed, levels, store, now) else {
            self.retry(id, feed, now);
            self.rest(id, feed, dry, front);
            return 0;
        };
        let mut given = self.assign(feed, &piece, front, &mut dry);
        if matches!(feed.kind, Kind::Inbox) {
            let recorded = record(feed, &piece, &given, store, now);
            if recorded < given.len() {
                give_up(feed, &given[recorded..]);
                given.truncate(recorded);
                self.retry(id, feed, now);
            }
        }
        let mut written = 0;
        let level_of = |at: usize| piece.list[at].0;
        // Those of one level to one member in one go.
        for run in given.chunk_by(|a, b| a.1 == b.1 && level_of(a.0) == level_of(b.0)) {
            let (to, level) = (run[0].1, level_of(run[0].0));
            let Some(member) = feed.members.get_mut(to) else { continue };
            let subject = member.dialect.subject(&feed.address, level);
            let messages = run.iter().map(|&(at, _)| {
                let (_, _, headers, ref place) = piece.list[at];
                (headers, &piece.bytes[place.clone()])
            });
            front.push(&member.outlet, &subject, messages);
            let of = feed.watched;
            let passed = run.iter().map(|&(at, _)| (piece.list[at].1, piece.list[at].3.len()));
            written += passed.clone().map(|(_, bytes)| bytes + LINE_BYTES).sum::<usize>();
            match &mut feed.kind {
                Kind::Own(position) => passed.for_each(|(id, _)| position.pass(level, id)),
                Kind::Queue { position, .. } => {
                    for (msg_id, _) in passed {
                        position.pass(level, msg_id);
                        let next = |level, from| store.next_message(of.slot, level, from);
                        member.held.add(level, msg_id, next);
                    }
                }
                Kind::Inbox => {
                    let out = passed.map(|(msg_id, bytes)| Out { of, msg_id, reader: to, bytes });
                    self.note_out(&member.outlet, out);
                }
            }
        }
        if piece.waits {
            self.wait_for_log(id, feed);
        }
        let goes_on = piece.more && feed.members.is_ready() && !feed.has_failed;
        if goes_on {
            feed.is_active = true;
            self.active.push_back(id);
        }
        self.rest(id, feed, dry, front);
        if matches!(feed.kind, Kind::Own(_)) {
            self.shared = Some(Shared::new(feed.watched.slot, levels, piece));
        }
        written
    }

    /// The next member that wants one of these levels and has room. Those that have none are set aside on the way, and
    /// are named in `dry` if they wait for room.
    fn taker(
        &mut self,
        feed: &mut Feed,
        levels: LevelSet,
        front: &Front,
        dry: &mut Vec<u64>,
    ) -> Option<u64> {
        let is_inbox = matches!(feed.kind, Kind::Inbox);
        loop {
            let reader = feed.members.candidate(levels)?;
            let member = feed.members.get_mut(reader)?;
            let room = match member.room {
                Some((turn, room)) if turn == self.work.turns => Some(room),
                _ => front.room_at(&member.outlet),
            };
            let conn = self.conns.get(&member.outlet.cid);
            let full = is_inbox && conn.is_some_and(|conn| !conn.may_take());
            member.room = room.map(|room| (self.work.turns, room));
            match room.filter(|room| room.messages > 0) {
                Some(room) if room.bytes > 0 && !full => return Some(reader),
                Some(_) => {
                    feed.members.set_state(reader, State::Thirsty);
                    dry.push(reader);
                }
                None => feed.members.set_state(reader, State::Over),
            }
        }
    }

    /// Decides who is given what, as the place in the piece and the reader. Neighbours go to one member as far as all
    /// have their share: an inbox records them together, and in this order.
    fn assign(
        &mut self,
        feed: &mut Feed,
        piece: &Piece,
        front: &Front,
        dry: &mut Vec<u64>,
    ) -> Vec<(usize, u64)> {
        let share = piece.list.len().div_ceil(feed.members.ready().max(1));
        let mut given: Vec<(usize, u64)> = Vec::with_capacity(piece.list.len());
        let mut blocked = LevelSet::default();
        let mut left = 0;
        // Who takes more of which level, without asking anew.
        let mut takes: Option<(Level, u64)> = None;
        for (at, (level, _, _, place)) in piece.list.iter().enumerate() {
            if blocked.has(*level) {
                continue;
            }
            let wanted = LevelSet::of(*level);
            let known = takes.filter(|(of, _)| of == level).map(|(_, reader)| reader);
            let Some(reader) = known.or_else(|| self.taker(feed, wanted, front, dry)) else {
                blocked = blocked.with(wanted);
                continue;
            };
            takes = None;
            left = match given.last() {
                Some((_, last)) if *last == reader => left,
                _ => share,
            };
            left -= 1;
            if let Some((_, room)) =
                feed.members.get_mut(reader).and_then(|member| member.room.as_mut())
            {
                room.bytes = room.bytes.saturating_sub(place.len() + LINE_BYTES);
                room.messages -= 1;
                let has_room = left > 0 && room.bytes > 0 && room.messages > 0;
                takes = has_room.then_some((*level, reader));
            }
            given.push((at, reader));
            if left == 0 {
                feed.members.pass(reader);
                left = share;
            }
        }
        given
    }

    /// What is next, read now or for another that stood at the same place.
    fn read(
        &mut self,
        feed: &Feed,
        levels: LevelSet,
        store: &mut Store,
        now: Now,
    ) -> Result<Piece> {
        let slot = feed.watched.slot;
        let reading = match &feed.kind {
            Kind::Own(position) => {
                let same = |shared: &mut Shared| shared.is_for(slot, levels, &position.cursors);
                if let Some(shared) = self.shared.take_if(same) {
                    return Ok(shared.piece);
                }
                Reading::At(position)
            }
            Kind::Queue { position, .. } => Reading::At(position),
            Kind::Inbox => Reading::Inbox,
        };
        self.work.reads += 1;
        let ahead = store.look_ahead(slot, reading, levels, PIECE, now)?;
        let from =
            if let Kind::Own(position) = &feed.kind { position.cursors } else { [0; LEVELS] };
        let mut piece = Piece { more: ahead.more, waits: ahead.waits, from, ..Piece::default() };
        piece.bytes.reserve(ahead.batch.bytes() + 128 * ahead.batch.len());
        piece.list.reserve(ahead.batch.len());
        for (meta, message) in ahead.batch.iter() {
            let start = piece.bytes.len();
            let headers = push::write(&mut piece.bytes, &meta, &message);
            piece.list.push((meta.level, meta.msg_id, headers, start..piece.bytes.len()));
        }
        Ok(piece)
    }

    /// The feed goes on when more of the log is durable.
    fn wait_for_log(&mut self, id: FeedId, feed: &mut Feed) {
        if !std::mem::replace(&mut feed.is_unready, true) {
            self.unready.push(id);
        }
    }

    /// Something failed: the feed goes on after a while.
    fn retry(&mut self, id: FeedId, feed: &mut Feed, now: Now) {
        if !std::mem::replace(&mut feed.has_failed, true) {
            self.failed.push(id);
        }
        self.retry_later(now);
    }

    /// The feed goes on when there is something new, or room for those that have none.
    fn rest(&mut self, id: FeedId, feed: &mut Feed, dry: Vec<u64>, front: &mut Front) {
        for reader in dry {
            let Some(member) = feed.members.get(reader) else { continue };
            let cid = member.outlet.cid;
            let conn = self.conns.entry(cid).or_default();
            conn.thirsty.push(reader);
            // One that owes an answer has room when it has given it.
            if conn.may_take() || !matches!(feed.kind, Kind::Inbox) {
                front.wait_for_room(cid);
            }
        }
        let waits = feed.members.is_ready() && !feed.is_active;
        if waits && !std::mem::replace(&mut feed.is_idle, true) {
            match self.mailboxes.get_mut(&feed.watched.number) {
                Some(mailbox) => mailbox.idle.push(id),
                None => feed.is_idle = false,
            }
        }
    }
}

/// Those who were to be given these messages are given none: whoever had room for no more has room again.
fn give_up(feed: &mut Feed, dropped: &[(usize, u64)]) {
    for run in dropped.chunk_by(|a, b| a.1 == b.1) {
        let Some(member) = feed.members.get_mut(run[0].1) else { continue };
        member.room = None;
        if member.state == State::Over {
            feed.members.set_state(run[0].1, State::Ready);
        }
    }
}

/// Records what of an inbox is being written to which connection, in the order of the messages: a group that has passed
/// a message knows who has it, wherever this ends. How many were recorded. The record may be written after the message:
/// if a crash comes between, the connection has broken as well, and the message is unread again as it would be otherwise.
fn record(
    feed: &Feed,
    piece: &Piece,
    given: &[(usize, u64)],
    store: &mut Store,
    now: Now,
) -> usize {
    let mut recorded = 0;
    for run in given.chunk_by(|a, b| a.1 == b.1) {
        let Some(member) = feed.members.get(run[0].1) else { break };
        let own: Vec<_> = run.iter().map(|&(at, _)| (piece.list[at].0, piece.list[at].1)).collect();
        let mut rest = &own[..];
        while !rest.is_empty() {
            let slot = feed.watched.slot;
            let Ok(count) = store.inbox_given(slot, member.outlet.cid, rest, now) else {
                return recorded;
            };
            recorded += count;
            rest = &rest[count..];
        }
    }
    recorded
}
