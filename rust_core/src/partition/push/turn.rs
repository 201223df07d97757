//! One turn of a feed: reads a piece, gives each message to a member that has room, and decides what to wait for.

use std::ops::Range;

use smallvec::SmallVec;

use super::Pushes;
use super::feed::{Feed, FeedId, Kind};
use crate::error::Result;
use crate::front::{Front, Room};
use crate::mailbox::{LEVELS, Level};
use crate::protocol::push;
use crate::store::{IDS_AT_ONCE, LevelSet, PushLimits, Reading, SlotIx, Store};
use crate::time::Now;

/// What is read at once.
const PIECE: PushLimits = PushLimits { max_msgs: 512, max_bytes: 64 << 10 };

/// The same of an inbox.
const INBOX_PIECE: PushLimits = PushLimits { max_msgs: IDS_AT_ONCE, max_bytes: 64 << 10 };

/// About what a message takes besides headers and payload.
const LINE_BYTES: usize = 64;

/// Messages as they are written, and whether there are more.
#[derive(Debug, Default)]
struct Piece {
    bytes: Vec<u8>,
    /// Level, `msg_id`, length of the headers, and where headers, payload and CRLF lie.
    list: Vec<(Level, u64, usize, Range<usize>)>,
    more: bool,
    waits: bool,
}

/// What was read for one feed, for others that stand at the same place.
#[derive(Debug)]
pub(super) struct Shared {
    slot: SlotIx,
    cursors: [u64; LEVELS],
    levels: LevelSet,
    piece: Piece,
}

impl Pushes {
    /// Gives a feed its turn; how many bytes it wrote.
    pub(super) fn turn(
        &mut self,
        id: FeedId,
        store: &mut Store,
        front: &mut Front,
        now: Now,
    ) -> usize {
        let Some(mut feed) = self.feeds.remove(&id) else { return 0 };
        feed.is_active = false;
        let written = self.take_turn(id, &mut feed, store, front, now);
        self.feeds.insert(id, feed);
        written
    }

    fn take_turn(
        &mut self,
        id: FeedId,
        feed: &mut Feed,
        store: &mut Store,
        front: &mut Front,
        now: Now,
    ) -> usize {
        let mut rooms = self.rooms(feed, front);
        let levels = wanted(feed, &rooms);
        if levels.is_empty() {
            self.rest(id, feed, &rooms, front);
            return 0;
        }
        let Ok(piece) = self.read(feed, levels, store, now) else {
            self.wait_for_log(id, feed);
            return 0;
        };
        let (given, blocked) = assign(feed, &piece, &mut rooms);
        if matches!(feed.kind, Kind::Inbox) && record(feed, &piece, &given, store, now).is_err() {
            self.wait_for_log(id, feed);
            return 0;
        }
        let mut written = 0;
        let level_of = |at: usize| piece.list[at].0;
        // Those of one level to one member in one go.
        for run in given.chunk_by(|a, b| a.1 == b.1 && level_of(a.0) == level_of(b.0)) {
            let (to, level) = (run[0].1, level_of(run[0].0));
            let member = &mut feed.members[to];
            let subject = member.dialect.subject(&feed.address, level);
            let messages = run.iter().map(|&(at, _)| {
                let (_, _, headers, ref place) = piece.list[at];
                (headers, &piece.bytes[place.clone()])
            });
            front.push(&member.outlet, &subject, messages);
            for &(at, _) in run {
                let (_, msg_id, _, ref place) = piece.list[at];
                written += place.len() + LINE_BYTES;
                match &mut feed.kind {
                    Kind::Own(position) => position.pass(level, msg_id),
                    Kind::Queue { position, .. } => {
                        position.pass(level, msg_id);
                        let slot = feed.watched.slot;
                        member.held.add(level, msg_id, |msg_id| store.has_message(slot, msg_id));
                    }
                    Kind::Inbox => {
                        self.note_out(member.outlet.cid, feed.watched, msg_id, place.len());
                    }
                }
            }
        }
        if piece.waits {
            self.wait_for_log(id, feed);
        }
        if piece.more || (blocked && !given.is_empty()) {
            feed.is_active = true;
            self.active.push_back(id);
        } else {
            self.rest(id, feed, &rooms, front);
        }
        self.keep(feed, levels, piece);
        written
    }

    /// How much each member may be given; nothing if it has ended.
    fn rooms(&self, feed: &Feed, front: &Front) -> SmallVec<[Option<Room>; 1]> {
        let room = |member: &super::Member| {
            let room = front.room_at(&member.outlet)?;
            let is_inbox = matches!(feed.kind, Kind::Inbox);
            let conn = self.conns.get(&member.outlet.cid);
            let full = is_inbox && conn.is_some_and(|conn| !conn.may_take());
            Some(Room { bytes: if full { 0 } else { room.bytes }, ..room })
        };
        feed.members.iter().map(room).collect()
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
        let (reading, limits) = match &feed.kind {
            Kind::Own(position) => {
                let same = |shared: &mut Shared| {
                    (shared.slot, shared.levels) == (slot, levels)
                        && shared.cursors == position.cursors
                };
                if let Some(shared) = self.shared.take_if(same) {
                    return Ok(shared.piece);
                }
                (Reading::At(position), PIECE)
            }
            Kind::Queue { position, .. } => (Reading::At(position), PIECE),
            Kind::Inbox => (Reading::Inbox, INBOX_PIECE),
        };
        let ahead = store.look_ahead(slot, reading, levels, limits, now)?;
        let mut piece = Piece { more: ahead.more, waits: ahead.waits, ..Piece::default() };
        piece.bytes.reserve(ahead.batch.bytes() + 128 * ahead.batch.len());
        for (meta, message) in ahead.batch.iter() {
            let start = piece.bytes.len();
            let headers = push::write(&mut piece.bytes, &meta, &message);
            piece.list.push((meta.level, meta.msg_id, headers, start..piece.bytes.len()));
        }
        Ok(piece)
    }

    /// Keeps what was read, for the next that stands where this feed stood.
    fn keep(&mut self, feed: &Feed, levels: LevelSet, piece: Piece) {
        let Kind::Own(position) = &feed.kind else { return };
        let mut cursors = position.cursors;
        // Where it stood before: each level at the first message that was read of it.
        for (level, msg_id, ..) in piece.list.iter().rev() {
            cursors[level.index()] = *msg_id;
        }
        self.shared = Some(Shared { slot: feed.watched.slot, cursors, levels, piece });
    }

    /// The feed goes on when more of the log is durable.
    fn wait_for_log(&mut self, id: FeedId, feed: &mut Feed) {
        if !std::mem::replace(&mut feed.is_unready, true) {
            self.unready.push(id);
        }
    }

    /// The feed goes on when there is something new, or room for those that have none.
    fn rest(&mut self, id: FeedId, feed: &mut Feed, rooms: &[Option<Room>], front: &mut Front) {
        for (member, room) in feed.members.iter_mut().zip(rooms) {
            if room.is_none_or(|room| room.bytes > 0) || member.is_thirsty {
                continue;
            }
            member.is_thirsty = true;
            let cid = member.outlet.cid;
            let conn = self.conns.entry(cid).or_default();
            conn.thirsty.push(id);
            // One that owes an answer has room when it has given it.
            if conn.may_take() || !matches!(feed.kind, Kind::Inbox) {
                front.wait_for_room(cid);
            }
        }
        let all_wait = !feed.members.is_empty() && feed.members.iter().all(|m| m.is_thirsty);
        if !all_wait && !std::mem::replace(&mut feed.is_idle, true) {
            match self.mailboxes.get_mut(&feed.watched.slot) {
                Some(mailbox) => mailbox.idle.push(id),
                None => feed.is_idle = false,
            }
        }
    }
}

/// The levels that somebody with room wants.
fn wanted(feed: &Feed, rooms: &[Option<Room>]) -> LevelSet {
    let with_room = feed.members.iter().zip(rooms).filter(|(_, room)| has_room(room));
    with_room.fold(LevelSet::default(), |levels, (member, _)| levels.with(member.levels))
}

fn has_room(room: &Option<Room>) -> bool {
    room.is_some_and(|room| room.bytes > 0 && room.messages > 0)
}

/// Decides who is given what: each message to the next member that wants it and has room. Also whether some found
/// nobody.
fn assign(
    feed: &mut Feed,
    piece: &Piece,
    rooms: &mut [Option<Room>],
) -> (Vec<(usize, usize)>, bool) {
    let mut given = Vec::with_capacity(piece.list.len());
    let mut blocked = LevelSet::default();
    for (at, (level, _, _, place)) in piece.list.iter().enumerate() {
        if blocked.has(*level) {
            continue;
        }
        let count = feed.members.len();
        let takes = |to: &usize| has_room(&rooms[*to]) && feed.members[*to].levels.has(*level);
        let to = (0..count).map(|step| (feed.next + step) % count).find(takes);
        let Some(to) = to else {
            blocked = blocked.with(LevelSet::of(*level));
            continue;
        };
        feed.next = (to + 1) % count;
        if let Some(room) = &mut rooms[to] {
            room.bytes = room.bytes.saturating_sub(place.len() + LINE_BYTES);
            room.messages -= 1;
        }
        given.push((at, to));
    }
    (given, !blocked.is_empty())
}

/// Records what of an inbox is being written to which connection.
fn record(
    feed: &Feed,
    piece: &Piece,
    given: &[(usize, usize)],
    store: &mut Store,
    now: Now,
) -> Result<()> {
    for (to, member) in feed.members.iter().enumerate() {
        let own = given.iter().filter(|(_, of)| *of == to);
        let own: Vec<_> = own.map(|&(at, _)| (piece.list[at].0, piece.list[at].1)).collect();
        if !own.is_empty() {
            store.inbox_given(feed.watched.slot, member.outlet.cid, &own, now)?;
        }
    }
    Ok(())
}
