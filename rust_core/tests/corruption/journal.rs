//! Logs written record by record, for what no store writes by itself.

use mq9_core::group::Delivered;
use mq9_core::group::ranges::{encode_deliveries, encode_ids};
use mq9_core::log::{FIRST_RECORD, Header, Lsn, names};
use mq9_core::mailbox::{LEVELS, Level};
use mq9_core::wire::op::{MemberName, Message, Op};
use mq9_core::wire::record::{self, Seed};
use mq9_sim::SimDisk;

pub const SALT: u64 = 0xfeed_f00d;

/// A segment in the making.
pub struct Journal {
    number: u32,
    pub bytes: Vec<u8>,
}

impl Journal {
    pub fn new(number: u32, previous: u32) -> Journal {
        let header = Header { number, previous, salt: SALT, created_ms: 0 };
        let bytes = header.encode();
        assert_eq!(bytes.len(), FIRST_RECORD as usize);
        Journal { number, bytes }
    }

    /// Appends a record; returns its bytes' range.
    pub fn raw(
        &mut self,
        kind: u8,
        flags: u8,
        mailbox: u64,
        body: &[u8],
    ) -> std::ops::Range<usize> {
        let at = Lsn::new(self.number, self.bytes.len() as u32);
        let start = record::begin(&mut self.bytes, kind, flags, mailbox);
        self.bytes.extend_from_slice(body);
        record::finish(&mut self.bytes, start, Seed::new(SALT, at.number()));
        start..self.bytes.len()
    }

    pub fn op(&mut self, flags: u8, mailbox: u64, op: &Op<'_>) -> std::ops::Range<usize> {
        let mut body = Vec::new();
        op.encode(&mut body);
        self.raw(op.kind(), flags, mailbox, &body)
    }

    /// Makes the record there unreadable.
    pub fn damage(&mut self, record: &std::ops::Range<usize>) {
        self.bytes[record.start] ^= 0x10;
    }

    pub fn save(&self, disk: &SimDisk) {
        disk.write_file(&names::segment(self.number), &self.bytes);
    }

    pub fn disk(&self) -> SimDisk {
        let disk = SimDisk::new();
        self.save(&disk);
        disk
    }
}

/// Appends the creation of a plain mailbox.
pub fn created(journal: &mut Journal, number: u64, address: &str) -> std::ops::Range<usize> {
    let (created_ms, expires_ms) = (1, 0);
    let op = Op::MailboxCreated { created_ms, expires_ms, address, desc: "", policy: &[] };
    journal.op(0, number, &op)
}

/// Appends a message of level 5.
pub fn message(
    journal: &mut Journal,
    number: u64,
    address: &str,
    msg_id: u64,
    payload: &[u8],
) -> std::ops::Range<usize> {
    let message = Message {
        msg_id,
        sent_ms: 1,
        create_ms: 1,
        expires_ms: 0,
        level: 5,
        address,
        key: "",
        tags: "",
        headers: b"",
        payload,
    };
    journal.op(0, number, &Op::Message(message))
}

/// Appends the pinning of a group to one id in all lanes.
pub fn pinned(journal: &mut Journal, number: u64, group: &str, start: u64) {
    let op = Op::GroupReset { group, start: [start; LEVELS], next_id: start };
    journal.op(0, number, &op);
}

/// Appends a first delivery of level 5 to a named member.
pub fn delivered(
    journal: &mut Journal,
    number: u64,
    group: &str,
    ids: std::ops::Range<u64>,
) -> std::ops::Range<usize> {
    let level = Level::NORMAL;
    let mut ranges = Vec::new();
    let deliveries = ids.map(|msg_id| Delivered { level, msg_id, count: 1 });
    encode_deliveries(deliveries, &mut ranges);
    let member = MemberName::Named("m");
    journal.op(
        0,
        number,
        &Op::Delivered { stamp: None, group, member, keeps: false, ranges: &ranges },
    )
}

/// Appends an acknowledgement.
pub fn acked(journal: &mut Journal, number: u64, group: &str, ids: std::ops::Range<u64>) {
    let mut ranges = Vec::new();
    encode_ids(ids, &mut ranges);
    journal.op(0, number, &Op::Acked { stamp: None, group, ranges: &ranges });
}
