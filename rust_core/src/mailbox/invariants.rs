//! Invariants of a mailbox between two commands. For tests: it looks at everything.

use std::collections::BTreeSet;

use super::{EXPIRES, Entry, Extras, KEYED, Mailbox};
use crate::log::Lsn;

impl Mailbox {
    /// Panics unless lanes, counters and what is kept of some messages agree with each other.
    pub fn check_invariants(&self) {
        let address = &self.address;
        assert!(self.lanes.is_sorted_by(|(a, _), (b, _)| a < b), "lanes of {address}");
        self.lanes.iter().for_each(|(_, lane)| lane.check_invariants());
        let entries: Vec<Entry> = self.iter_from(0).map(|(_, entry)| entry).collect();
        let ids: BTreeSet<u64> = entries.iter().map(|entry| entry.msg_id).collect();
        assert_eq!(ids.len(), entries.len(), "a message of {address} in two lanes");
        assert_eq!(self.visible(), entries.len(), "messages of {address}");
        let next_id = self.next_id;
        assert!(ids.last().is_none_or(|last| *last < next_id), "{address} gives ids again");
        let nothing = Extras::default();
        let extras = self.extras().unwrap_or(&nothing);
        let delayed: u64 = extras.delayed.iter().map(|(_, delayed)| u64::from(delayed.len)).sum();
        assert_eq!(extras.delayed_bytes, delayed, "delayed bytes of {address}");
        let bytes = delayed + entries.iter().map(|entry| u64::from(entry.len)).sum::<u64>();
        assert_eq!(self.bytes, bytes, "bytes of {address}");
        extras.check_invariants(address, &entries);
    }
}

impl Extras {
    fn check_invariants(&self, address: &str, entries: &[Entry]) {
        let with = |is_so: fn(&Entry) -> bool| -> BTreeSet<u64> {
            entries.iter().filter(|entry| is_so(entry)).map(|entry| entry.msg_id).collect()
        };
        let keyed: BTreeSet<u64> = self.keyed.iter().map(|(id, _)| id).collect();
        assert_eq!(keyed, with(|e| e.flags & KEYED != 0), "messages of {address} with a key");
        assert_eq!(self.keys.len(), keyed.len(), "two messages of a key in {address}");
        for (id, key) in self.keyed.iter() {
            assert_eq!(self.keys.get(key), Some(&id), "the message of key {key} in {address}");
        }
        let expiries: BTreeSet<u64> = self.expiries.iter().map(|(id, _)| id).collect();
        assert_eq!(expiries, with(|e| e.flags & EXPIRES != 0), "those of {address} that expire");
        let memory: BTreeSet<u64> = self.memory.keys().copied().collect();
        assert_eq!(memory, with(|e| e.at == Lsn::NONE), "messages of {address} in memory");
        assert!(memory.last().is_none_or(|last| *last < self.reserved_ids), "ids of {address}");
        let counted = [self.keyed.len(), self.expiries.len(), self.delayed.len()];
        let delays: BTreeSet<u64> = self.delayed.iter().map(|(id, _)| id).collect();
        assert_eq!(counted, [keyed.len(), expiries.len(), delays.len()], "maps of {address}");
        assert!(delays.last().is_none_or(|last| *last < self.next_delay), "delays of {address}");
        let in_memory = self.delayed.iter().filter(|(_, delayed)| delayed.at == Lsn::NONE);
        let mut kept = self.memory_delayed.keys().collect::<Vec<_>>();
        kept.sort_unstable();
        assert!(in_memory.map(|(id, _)| id).eq(kept.into_iter().copied()), "delayed in {address}");
        if let Some(sent_ids) = &self.sent_ids {
            sent_ids.check_invariants();
        }
    }
}
