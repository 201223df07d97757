//! Reading a checkpoint in blocks of whole sections, and decoding the blocks on several threads.
//!
//! Most of the time of a large checkpoint goes into checksums and into memory for the index, neither
//! of which needs to be done in order.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Scope;

use super::format::{
    CONSUMER, END, Ends, GIVING_UP_CONSUMER, HEAD, Head, LANE, MAGIC, MAILBOX, SEGMENTS, SENT_IDS,
    SUBJECTS, StoredMailbox, TIE, TIED_VERSION, UNEVEN_CONSUMER, decode_part, decode_sent_ids,
    decode_subjects,
};
use crate::consumer::Consumer;
use crate::disk::{Disk, DiskFile};
use crate::error::{Error, Result};
use crate::log::names;
use crate::mailbox::{Lane, Level, Policy, Sent};
use crate::wire::bytes::Reader;
use crate::wire::section;
use crate::wire::tie::TieRecord;

/// Bytes read at a time, unless one section has more.
const READ: usize = 1 << 18;

/// Checkpoints smaller than this are decoded without threads.
const THREADS_FROM: u64 = 1 << 20;
const THREADS: usize = 2;

/// What a section says.
pub enum Section {
    Head(Head),
    Segments(Ends),
    Tie(TieRecord),
    Mailbox(Box<StoredMailbox>, Policy),
    Lane(Level, Lane),
    SentIds(Vec<Sent>),
    Subjects(Vec<(u64, Arc<str>)>),
    Consumer(Box<str>, Box<Consumer>),
    End {
        sections: u64,
    },
    /// Sound and unknown.
    Newer(String),
    Damaged,
}

/// Whole sections, one right behind the other.
#[derive(Default)]
struct Block {
    at: u64,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Block {
    fn decode(&self) -> Vec<(u64, Section)> {
        let mut start = 0;
        let sections = self.ends.iter().map(|&end| {
            let at = self.at + start as u64;
            let bytes = self.bytes.get(start..end).unwrap_or_default();
            start = end;
            (at, Section::decode(bytes))
        });
        sections.collect()
    }
}

impl Section {
    fn decode(bytes: &[u8]) -> Section {
        let Some((kind, body)) = section::decode(bytes) else { return Section::Damaged };
        let section =
            match kind {
                HEAD => Head::decode(body).map(|head| match head.version {
                    1..=TIED_VERSION => Section::Head(head),
                    other => Section::Newer(format!("a checkpoint of version {other}")),
                }),
                MAILBOX => StoredMailbox::decode(body).and_then(|(mailbox, policy)| {
                    match Policy::decode(policy) {
                        Ok(policy) => Some(Section::Mailbox(Box::new(mailbox), policy?)),
                        Err(tag) => Some(Section::Newer(format!("a mailbox policy of tag {tag}"))),
                    }
                }),
                LANE => decode_part(body).map(|(level, part)| Section::Lane(level, part)),
                SEGMENTS => Ends::decode(body).map(Section::Segments),
                TIE => TieRecord::decode(&mut Reader::new(body)).map(Section::Tie),
                SENT_IDS => decode_sent_ids(body).map(Section::SentIds),
                SUBJECTS => decode_subjects(body).map(Section::Subjects),
                CONSUMER | UNEVEN_CONSUMER | GIVING_UP_CONSUMER => decode_consumer(body),
                END => Reader::new(body).u64().map(|sections| Section::End { sections }),
                other => Some(Section::Newer(format!("a section of kind {other}"))),
            };
        section.unwrap_or(Section::Damaged)
    }
}

fn decode_consumer(body: &[u8]) -> Option<Section> {
    let mut from = Reader::new(body);
    let name = from.short_str()?;
    match Consumer::decode(from.rest()) {
        Ok(consumer) => Some(Section::Consumer(name.into(), Box::new(consumer?))),
        Err(tag) => Some(Section::Newer(format!("a consumer of tag {tag}"))),
    }
}

/// A checkpoint file.
pub struct Blocks {
    file: Arc<dyn DiskFile>,
    pub name: String,
    pub size: u64,
    position: u64,
    /// Blocks to be filled again: their memory is warm.
    spare: Vec<Block>,
}

impl Blocks {
    /// Opens the checkpoint `number`.
    pub fn open(disk: &dyn Disk, number: u32) -> Result<Blocks> {
        let name = names::checkpoint(number);
        let file = disk.open(&name).map_err(|e| Error::io("open", name.clone(), e))?;
        let size = file.size().map_err(|e| Error::io("read", name.clone(), e))?;
        let mut blocks = Blocks { file, name, size, position: 0, spare: Vec::new() };
        let mut magic = [0; MAGIC.len()];
        blocks.read(&mut magic, 0)?;
        // With another beginning there is no section to be found.
        blocks.position = if magic == *MAGIC { MAGIC.len() as u64 } else { size };
        Ok(blocks)
    }

    /// Whether the last bytes are an end section: a file that was cut short has none there.
    pub fn has_end(&self) -> Result<bool> {
        const LEN: usize = section::HEADER + 8;
        let mut bytes = [0; LEN];
        let Some(at) = self.size.checked_sub(LEN as u64) else { return Ok(false) };
        self.read(&mut bytes, at)?;
        Ok(section::decode(&bytes).is_some_and(|(kind, _)| kind == END))
    }

    fn read(&self, buf: &mut [u8], at: u64) -> Result<usize> {
        self.file.read_at(buf, at).map_err(|e| Error::io("read", self.name.clone(), e))
    }

    /// The next sections; `None` at the end, or where no whole one follows.
    fn next(&mut self) -> Result<Option<Block>> {
        let left = self.size.saturating_sub(self.position);
        let mut block = self.spare.pop().unwrap_or_default();
        block.at = self.position;
        block.ends.clear();
        let mut wanted = left.min(READ as u64) as usize;
        loop {
            block.bytes.resize(wanted, 0);
            let got = self.read(&mut block.bytes, self.position)?;
            block.bytes.truncate(got);
            let mut start = 0;
            let mut larger = None;
            while let Some(header) = block.bytes.get(start..).and_then(|rest| rest.first_chunk()) {
                let len = section::body_len(header).saturating_add(section::HEADER as u64);
                if len > left - start as u64 {
                    break;
                }
                if start + len as usize > block.bytes.len() {
                    larger = (start == 0 && got == wanted).then_some(len as usize);
                    break;
                }
                start += len as usize;
                block.ends.push(start);
            }
            let Some(larger) = larger else {
                self.position += start as u64;
                return Ok((start > 0).then_some(block));
            };
            wanted = larger;
        }
    }

    /// Calls `each` with every section in order, until it returns an outcome. `None` if it never does.
    pub fn for_each<T>(
        mut self,
        mut each: impl FnMut(&str, u64, Section) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let threads = if self.size >= THREADS_FROM { THREADS } else { 0 };
        std::thread::scope(|scope| {
            let decoders: Vec<Decoder> = (0..threads).map(|_| Decoder::start(scope)).collect();
            let (mut given, mut taken) = (0, 0);
            loop {
                let decoded = if decoders.is_empty() {
                    let Some(block) = self.next()? else { return Ok(None) };
                    let sections = block.decode();
                    self.spare.push(block);
                    sections
                } else {
                    while given - taken < 2 * threads
                        && let Some(block) = self.next()?
                    {
                        decoders[given % threads].give(block);
                        given += 1;
                    }
                    if given == taken {
                        return Ok(None);
                    }
                    let Some((block, sections)) = decoders[taken % threads].take() else {
                        return Ok(None);
                    };
                    taken += 1;
                    self.spare.push(block);
                    sections
                };
                for (at, section) in decoded {
                    if let Some(outcome) = each(&self.name, at, section)? {
                        return Ok(Some(outcome));
                    }
                }
            }
        })
    }
}

/// A thread that decodes blocks in the order it is given them. Ends when dropped.
struct Decoder {
    blocks: Sender<Block>,
    decoded: Receiver<(Block, Vec<(u64, Section)>)>,
}

impl Decoder {
    fn start<'scope>(scope: &'scope Scope<'scope, '_>) -> Decoder {
        let (blocks, incoming) = channel::<Block>();
        let (outgoing, decoded) = channel();
        scope.spawn(move || {
            for block in incoming {
                let sections = block.decode();
                if outgoing.send((block, sections)).is_err() {
                    break;
                }
            }
        });
        Decoder { blocks, decoded }
    }

    fn give(&self, block: Block) {
        // A thread that is gone is noticed where its answer is missing.
        let _ = self.blocks.send(block);
    }

    fn take(&self) -> Option<(Block, Vec<(u64, Section)>)> {
        self.decoded.recv().ok()
    }
}
