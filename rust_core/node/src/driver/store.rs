//! Carries out a member's decisions on the store, and handles a disk that is full.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mq9_cluster::{Content, Position};
use mq9_core::error::Error;
use mq9_core::log::Outgoing;
use mq9_core::wire::tie::Tie;
use mq9_runtime::clock;

use super::{Driver, outgoing, place};
use crate::status::Role;

/// How often a full disk is tried again.
const FULL_MS: u64 = 1_000;

/// A batch that the full disk has not taken.
pub(super) struct Unwritten {
    records: Vec<Outgoing>,
    position: Position,
    again_at: u64,
}

impl Driver {
    /// Writes a batch of the leader into the own log.
    pub(super) fn apply(&mut self, content: Content, position: Position, now: u64) {
        let records = match content {
            Content::Records(records) => records.into_iter().map(outgoing).collect(),
            Content::Claim | Content::Yield(_) => Vec::new(),
        };
        self.write_batch(records, position, now);
    }

    fn write_batch(&mut self, records: Vec<Outgoing>, position: Position, now: u64) {
        let Some(mut store) = self.store.lock_if_open() else { return };
        let tie = Tie { at: place(position), before: None };
        let applied = store.apply(&records, &tie, clock::now());
        drop(store);
        match applied {
            Ok(()) => {}
            // Nothing was changed. The stream keeps the rest, and this node does not claim meanwhile.
            Err(error @ Error::DiskFull(_)) => {
                self.state.trouble = Some(format!("this node does not follow: {error}"));
                self.state.connection = None;
                let again_at = now + FULL_MS;
                self.state.unwritten = Some(Unwritten { records, position, again_at });
            }
            Err(error) => {
                self.stopped(format!("message {} of the stream: {error}", position.sequence));
            }
        }
    }

    /// Tries again what a full disk did not take.
    pub(super) fn write_again(&mut self, now: u64) {
        if let Some(unwritten) = self.state.unwritten.take_if(|batch| now >= batch.again_at) {
            self.write_batch(unwritten.records, unwritten.position, now);
            if self.state.unwritten.is_none() && self.state.end.is_none() {
                self.state.trouble = None;
                self.act(now);
            }
        }
    }

    /// The claim is in the stream: commands are carried out here from now on.
    pub(super) fn lead(&mut self, position: Position) {
        let Some(mut store) = self.store.lock_if_open() else { return };
        let tie = Tie { at: place(position), before: None };
        let promoted = store.promote(&tie, clock::now());
        if promoted.is_ok() {
            let (wishes, bell) = (Arc::clone(&self.wishes), Arc::clone(&self.bell));
            store.on_outgoing(move || {
                wishes.outgoing.store(true, Ordering::SeqCst);
                bell.ring();
            });
        }
        drop(store);
        match promoted {
            Ok(()) => {
                self.wishes.outgoing.store(true, Ordering::SeqCst);
                self.syncer.begin_lease(self.member.reads_until());
                self.end_tail();
            }
            // Another node takes over when this one is not heard of.
            Err(error @ Error::DiskFull(_)) => {
                self.state.trouble = Some(format!("this node cannot lead: {error}"));
                self.demoted(u64::MAX);
            }
            Err(error) => self.stopped(format!("this node cannot lead: {error}")),
        }
    }

    /// The store is to be opened again, up to `keep`.
    pub(super) fn demoted(&mut self, keep: u64) {
        self.syncer.begin_lease(0);
        self.state.keep = keep;
        self.state.end = Some(Role::Demoted);
    }

    /// Nothing more is done, and this is why.
    pub(super) fn stopped(&mut self, why: String) {
        self.syncer.begin_lease(0);
        self.state.trouble = Some(why);
        self.state.end = Some(Role::Stopped);
    }
}
