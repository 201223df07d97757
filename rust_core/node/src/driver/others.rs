//! Messages between nodes beside the stream, and their consequences: who has what, and who leads next.

use std::sync::atomic::Ordering;

use mq9_cluster::{Position, Role as MemberRole, Writer};
use mq9_runtime::clock;

use super::{ANYBODY, Driver, place};
use crate::status::{Peer, Role};
use crate::stream::IDLE_MS;

const TELL_MS: u64 = 500;
const PURGE_MS: u64 = 5_000;
/// Messages that stay in the stream although all nodes have them.
const PURGE_MARGIN: u64 = 1_000;
/// A leader whose disk refuses messages for so long gives its lead away: upkeep may find room before.
const UNWELL_MS: u64 = 1_000;
/// How long a leader waits for its lead to be given away.
const YIELD_MS: u64 = 2_000;
/// A leader that no server is connected to gives up after so many leases without an answer: another may lead by then.
const CUT_OFF_LEASES: u64 = 1;
/// The same while a server is connected: the stream elects a leader of its own in up to ten seconds.
const NO_ANSWER_LEASES: u64 = 5;

impl Driver {
    /// Another node leads by now, or will, if the stream has not answered for long: clients look for it.
    pub(super) fn give_up(&mut self, now: u64) {
        let Some(answered_at) = self.member.answered_at() else { return };
        if self.state.end.is_some() {
            return;
        }
        let silent_ms = now.saturating_sub(answered_at);
        let is_connected = self.state.connection.is_some();
        let leases = if is_connected { NO_ANSWER_LEASES } else { CUT_OFF_LEASES };
        if silent_ms >= leases * self.settings.lease_ms {
            self.state.trouble =
                Some(format!("the stream did not answer for {silent_ms} ms: the lead is given up"));
            self.demoted(u64::MAX);
        } else if self.state.trouble.is_none() && !self.answers(now) {
            self.state.trouble =
                Some("the stream does not answer: nothing is confirmed".to_owned());
        } else if self.answers(now) && is_connected {
            self.state.trouble = self.state.unwell.as_ref().map(|(why, _)| why.clone());
        }
    }

    /// Whether the stream answers: for a leader, that clients get replies.
    pub(super) fn answers(&self, now: u64) -> bool {
        match self.member.role() {
            MemberRole::Leading => now < self.member.reads_until(),
            MemberRole::Following => self.state.connection.as_ref().is_some_and(|connection| {
                connection.is_ready && connection.tail_at.is_some_and(|at| now < at + 4 * IDLE_MS)
            }),
            MemberRole::Starting | MemberRole::Stopped => false,
        }
    }

    /// Who leads, as a number. Nobody, while this node tries to: who hands clients on to it got them from here.
    pub(super) fn leader(&self, leader: Option<Writer>) -> u32 {
        match leader {
            Some(Writer { node, .. }) if !self.member.is_claiming() => node,
            _ => 0,
        }
    }

    /// Another node, or one that takes itself for this one, says where it is.
    pub(super) fn heard_of(&mut self, peer: Peer, now: u64) {
        let own = &self.settings;
        if peer.node == own.node && peer.incarnation != own.incarnation {
            self.state.rival = peer.incarnation;
            // What an earlier process said comes late, and all at once, when a server or a link goes on. Who knows of
            // this one was there when it had begun. The one that was there first goes on.
            let age_ms = now.saturating_sub(self.state.began_at);
            let is_alive = peer.rival == own.incarnation;
            if is_alive && (peer.age_ms, peer.incarnation) > (age_ms, own.incarnation) {
                let (node, cluster) = (own.node, &own.cluster);
                self.stopped(format!(
                    "node {node} of the cluster {cluster} runs already: give each node a number of its own, and \
                     each cluster on these servers a name"
                ));
            }
            return;
        }
        self.state.last = self.state.last.max(peer.sequence);
        self.state.peers.hear(peer, now);
    }

    /// Says where this node is.
    pub(super) fn tell(&mut self, now: u64) {
        if now < self.state.tell_at {
            return;
        }
        self.state.tell_at = now + TELL_MS;
        // Batches of others are not synced one by one.
        self.syncer.call_thread();
        self.note_durable();
        let is_full = self.note_room(now);
        let Position { sequence, digest, term, leader } = self.member.position();
        let peer = Peer {
            node: self.settings.node,
            role: self.role(),
            term,
            sequence,
            durable: self.state.durable,
            digest: digest.to_string(),
            leader: self.leader(leader),
            incarnation: self.settings.incarnation,
            age_ms: now.saturating_sub(self.state.began_at),
            rival: self.state.rival,
            is_full,
        };
        if let (Some(connection), Ok(text)) =
            (&mut self.state.connection, serde_json::to_vec(&peer))
        {
            self.stream.tell(&mut connection.link.out, self.settings.node, &text);
        }
    }

    fn note_durable(&mut self) {
        if let Some((sequence, end)) = self.state.mark {
            if self.syncer.settled() < end {
                return;
            }
            self.state.durable = sequence;
        }
        if let Some(store) = self.store.lock_if_open() {
            self.state.mark = store.last_tie().map(|tie| (tie.at.sequence, store.end()));
        }
    }

    /// Whether the own disk refuses messages; what a leader does then, [`Driver::yield_if_unwell`] says.
    fn note_room(&mut self, now: u64) -> bool {
        let Some(mut store) = self.store.lock_if_open() else { return false };
        let why = match self.syncer.check() {
            Err(error) => Some(error.to_string()),
            Ok(()) if store.is_follower() => return !store.has_room(clock::now()),
            Ok(()) => store.refusing().map(str::to_owned),
        };
        drop(store);
        self.state.unwell = why.map(|why| {
            let since = self.state.unwell.as_ref().map_or(now, |(_, since)| *since);
            (format!("this node takes no messages: {why}"), since)
        });
        self.state.unwell.is_some()
    }

    /// A leader that cannot write leaves the lead to one that can. Heartbeats alone would keep it for ever.
    pub(super) fn yield_if_unwell(&mut self, now: u64) {
        let leads = self.member.role() == MemberRole::Leading && self.state.end.is_none();
        let Some((why, since)) = &self.state.unwell else { return };
        if !leads || self.wishes.yield_to.load(Ordering::SeqCst) != 0 {
            return;
        }
        // Opening it again is all that helps then, be there another leader or not.
        let has_stopped = self.syncer.check().is_err();
        let next = self.state.peers.best_placed(&self.settings.members, self.settings.node, now);
        if next.is_some_and(|peer| !peer.is_full) && (has_stopped || now >= since + UNWELL_MS) {
            self.state.trouble = Some(format!("{why}: its lead is given away"));
            self.wishes.yield_to.store(ANYBODY, Ordering::SeqCst);
        } else if has_stopped {
            self.state.trouble = Some(format!("{why}: its lead is given up"));
            self.demoted(u64::MAX);
        }
    }

    /// Removes from the stream what all nodes have for good.
    pub(super) fn purge(&mut self, now: u64) {
        if now < self.state.purge_at || self.member.role() != MemberRole::Leading {
            return;
        }
        self.state.purge_at = now + PURGE_MS;
        self.tie_heartbeats();
        let durable = self.state.peers.durable_at_all(&self.settings.members, now);
        let before = durable.unwrap_or(0).min(self.state.durable).saturating_sub(PURGE_MARGIN);
        if before > self.state.purged + PURGE_MARGIN
            && let Some(connection) = &mut self.state.connection
        {
            self.state.purged = before;
            self.stream.purge(&mut connection.link.out, before);
        }
    }

    /// Heartbeats leave nothing in a leader's own log. It notes now and then where they have led: what it does not know
    /// to be behind it has to stay in the stream.
    fn tie_heartbeats(&mut self) {
        let position = self.member.position();
        let Some(mut store) = self.store.lock_if_open() else { return };
        let tied = store.last_tie().map_or(0, |tie| tie.at.sequence);
        if position.sequence >= tied + PURGE_MARGIN {
            // Without room for it the stream is shortened later.
            let _ = store.tie_heartbeats(place(position), clock::now());
        }
    }

    /// Gives the lead to the node that is asked for, once everything under way is in the stream.
    pub(super) fn yield_if_told(&mut self, now: u64) {
        let wanted = self.wishes.yield_to.load(Ordering::SeqCst);
        if wanted == 0 || self.state.end.is_some() || self.state.yield_until.is_some() {
            return;
        }
        if self.member.role() != MemberRole::Leading || self.give_away(wanted, now) != Some(false) {
            self.wishes.yield_to.store(0, Ordering::SeqCst);
        }
    }

    /// A leader that is to stop gives its lead away first.
    pub(super) fn end_if_told(&mut self, now: u64) {
        if !self.wishes.stop.load(Ordering::SeqCst) || self.state.end.is_some() {
            return;
        }
        let until = *self.state.yield_until.get_or_insert(now + YIELD_MS);
        if self.member.role() != MemberRole::Leading || now >= until {
            self.state.end = Some(Role::Stopped);
            return;
        }
        if self.give_away(ANYBODY, now).is_none() {
            self.state.end = Some(Role::Stopped);
        }
    }

    /// Yields to `wanted`, or to the best placed; false while something is under way, none if nobody can take it.
    /// What was not proposed yet is cut off: its clients have no answer, and ask again.
    fn give_away(&mut self, wanted: u32, now: u64) -> Option<bool> {
        let (own, peers) = (self.settings.node, &self.state.peers);
        let node = match wanted {
            ANYBODY => peers.best_placed(&self.settings.members, own, now)?.node,
            wanted if peers.follows(own, wanted, now) => wanted,
            _ => return None,
        };
        if !self.member.has_room() || self.member.yield_to(node, now).is_err() {
            return Some(false);
        }
        // From now on another may lead at any moment.
        self.syncer.begin_lease(0);
        self.act(now);
        Some(true)
    }
}
