//! The dataset `events`: a row for everything that happened to a message or a mailbox.
//!
//! Kept as runs of messages to which the same happened at once: a few bytes of log may stand for very many rows.

use std::sync::Arc;

use bytes::Bytes;
use mq9_core::disk::DiskFile;
use mq9_core::wire::op::MemberName;
use parquet::errors::Result;

use crate::columns::{Columns, Table};
use crate::hours::Hour;
use crate::messages::Setting;
use crate::schema::Schema;

/// Most rows of a row group.
const ROWS: usize = 128 << 10;

/// The same thing that happened to some messages, or to a mailbox.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// What happened.
    pub kind: &'static str,
    /// The mailbox.
    pub mailbox: &'a str,
    /// The first message; `None` if it happened to the mailbox.
    pub first_id: Option<u64>,
    /// How many messages; 1 for a mailbox.
    pub len: u32,
    /// When.
    pub time_ms: u64,
    /// Offset of the record in its segment.
    pub offset: u32,
    /// Number of the first row within the record.
    pub seq: u32,
    /// What else is known of it.
    pub more: More<'a>,
}

/// What is known of some kinds of events.
#[derive(Debug, Clone, Copy, Default)]
pub struct More<'a> {
    /// Level of the message.
    pub level: Option<u8>,
    /// The group.
    pub group: Option<&'a str>,
    /// The member.
    pub member: Option<MemberName<'a>>,
    /// How often it has been delivered.
    pub count: Option<u32>,
    /// The dead-letter mailbox.
    pub target: Option<&'a str>,
    /// Bytes of the payload.
    pub size: Option<u64>,
    /// Why.
    pub cause: Option<&'static str>,
}

impl Run<'_> {
    /// The partition it belongs to.
    pub fn hour(&self) -> Hour {
        Hour::of(self.time_ms)
    }

    fn rows(&self) -> impl Iterator<Item = (&Run<'_>, u32)> {
        (0..self.len).map(move |at| (self, at))
    }
}

/// By partition, then as the files are sorted.
pub fn sort(runs: &mut [Run<'_>]) {
    runs.sort_by(|a, b| {
        let order = |run: &Run<'_>| (run.time_ms, run.offset, run.seq);
        let hours = a.hour().cmp(&b.hour());
        hours.then_with(|| a.mailbox.cmp(b.mailbox)).then_with(|| order(a).cmp(&order(b)))
    });
}

/// Writes sorted runs of one partition; returns rows and bytes of the file.
pub fn write(
    runs: &[Run<'_>],
    setting: Setting<'_>,
    file: Arc<dyn DiskFile>,
    schema: &Schema,
) -> Result<(u64, u64)> {
    let mut table = Table::new(file, schema)?;
    let mut rows = runs.iter().flat_map(Run::rows).peekable();
    let mut written = 0;
    while rows.peek().is_some() {
        let group: Vec<_> = rows.by_ref().take(ROWS).collect();
        written += group.len() as u64;
        table.row_group(|columns| write_group(&group, setting, columns))?;
    }
    Ok((written, table.finish()?))
}

fn write_group(rows: &[(&Run<'_>, u32)], setting: Setting<'_>, to: &mut Columns<'_>) -> Result<()> {
    let text = |text: &str| setting.bytes.slice_ref(text.as_bytes());
    let runs = || rows.iter().map(|(run, _)| *run);
    to.texts(runs().map(|run| Bytes::from_static(run.kind.as_bytes())))?;
    to.texts(runs().map(|run| text(run.mailbox)))?;
    to.optional_longs(rows.iter().map(|(run, at)| Some(run.first_id? + u64::from(*at))))?;
    to.optional_ints(runs().map(|run| run.more.level.map(u32::from)))?;
    to.optional_texts(runs().map(|run| run.more.group.map(text)))?;
    to.optional_texts(runs().map(|run| {
        run.more.member.map(|member| match member {
            MemberName::Named(name) => text(name),
            MemberName::Conn { epoch, conn } => Bytes::from(format!("conn:{epoch}:{conn}")),
        })
    }))?;
    to.longs(runs().map(|run| run.time_ms))?;
    to.optional_ints(runs().map(|run| run.more.count))?;
    to.optional_texts(runs().map(|run| run.more.target.map(text)))?;
    to.optional_longs(runs().map(|run| run.more.size))?;
    to.longs(runs().map(|_| u64::from(setting.segment)))?;
    to.longs(runs().map(|run| u64::from(run.offset)))?;
    to.ints(rows.iter().map(|(run, at)| run.seq.wrapping_add(*at)))?;
    to.optional_texts(
        runs().map(|run| run.more.cause.map(|cause| Bytes::from_static(cause.as_bytes()))),
    )
}
