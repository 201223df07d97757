//! The bytes of one simulated file: a length and the pages that were ever written.
//!
//! Copies share every page until one of them writes it, and reserved space takes no memory, so that
//! a crash can be simulated after every operation. Knows nothing of what is durable.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Large enough that copying the map of pages is cheap, small enough that copying a page is.
const PAGE: usize = 16 * 1024;

type Pages = BTreeMap<u64, Arc<[u8; PAGE]>>;

/// Invariant: every byte at or past `len` is zero, so that growing a file needs no clearing.
#[derive(Clone, Default)]
pub(crate) struct Contents {
    len: u64,
    pages: Arc<Pages>,
}

impl Contents {
    pub(crate) fn from_bytes(bytes: &[u8]) -> Contents {
        let mut contents = Contents::default();
        contents.write(0, bytes);
        contents
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len as usize];
        self.read(&mut bytes, 0);
        bytes
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The caller has checked that `offset + data.len()` is a valid length.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        let pages = Arc::make_mut(&mut self.pages);
        for (at, range) in pieces(offset, data.len(), PAGE) {
            let page = pages.entry(at / PAGE as u64).or_insert_with(|| Arc::new([0; PAGE]));
            let start = (at % PAGE as u64) as usize;
            Arc::make_mut(page)[start..start + range.len()].copy_from_slice(&data[range]);
        }
        if !data.is_empty() {
            self.grow(offset + data.len() as u64);
        }
    }

    pub(crate) fn read(&self, buf: &mut [u8], offset: u64) -> usize {
        let readable = self.len.saturating_sub(offset).min(buf.len() as u64) as usize;
        for (at, range) in pieces(offset, readable, PAGE) {
            let start = (at % PAGE as u64) as usize;
            match self.pages.get(&(at / PAGE as u64)) {
                Some(page) => buf[range.clone()].copy_from_slice(&page[start..start + range.len()]),
                None => buf[range].fill(0),
            }
        }
        readable
    }

    pub(crate) fn grow(&mut self, len: u64) {
        self.len = self.len.max(len);
    }

    pub(crate) fn set_len(&mut self, len: u64) {
        if len < self.len {
            let pages = Arc::make_mut(&mut self.pages);
            pages.split_off(&len.div_ceil(PAGE as u64));
            let tail = (len % PAGE as u64) as usize;
            if tail > 0
                && let Some(page) = pages.get_mut(&(len / PAGE as u64))
            {
                Arc::make_mut(page)[tail..].fill(0);
            }
        }
        self.len = len;
    }
}

/// Cuts `len` bytes at `offset` of a file where the file has multiples of `unit`: the offset in the
/// file and the range in the data of each piece.
pub(crate) fn pieces(
    offset: u64,
    len: usize,
    unit: usize,
) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done as u64;
        let n = (unit - (at % unit as u64) as usize).min(len - done);
        let range = done..done + n;
        done += n;
        Some((at, range))
    })
}
