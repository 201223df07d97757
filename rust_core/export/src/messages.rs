//! The dataset `messages`: a row for every message that entered a mailbox.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use mq9_core::disk::DiskFile;
use mq9_core::mailbox::Level;
use mq9_core::wire::op::Message;
use parquet::errors::Result;

use crate::columns::{Columns, Table};
use crate::hours::Hour;
use crate::schema::Schema;

/// Most rows of a row group, and most bytes of payloads, unless one message has more.
const ROWS: usize = 64 << 10;
const BYTES: usize = 16 << 20;

/// A message and where it lies in its segment.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// The message.
    pub message: Message<'a>,
    /// Offset of its record.
    pub offset: u32,
}

impl Row<'_> {
    /// The partition it belongs to.
    pub fn hour(&self) -> Hour {
        Hour::of(self.message.sent_ms)
    }
}

/// What all rows of a piece share.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    /// The bytes that the rows point into.
    pub bytes: &'a Bytes,
    /// The segment.
    pub segment: u32,
    /// Whether payloads are written.
    pub payloads: bool,
}

/// By partition, then as the files are sorted.
pub fn sort(rows: &mut [Row<'_>]) {
    rows.sort_by(|a, b| {
        let order = |row: &Row<'_>| (row.message.msg_id, row.offset);
        let hours = a.hour().cmp(&b.hour());
        let addresses = || a.message.address.cmp(b.message.address);
        hours.then_with(addresses).then_with(|| order(a).cmp(&order(b)))
    });
}

/// Writes sorted rows of one partition; returns the bytes of the file.
pub fn write(
    rows: &[Row<'_>],
    setting: Setting<'_>,
    file: Arc<dyn DiskFile>,
    schema: &Schema,
) -> Result<u64> {
    let mut table = Table::new(file, schema)?;
    let mut rest = rows;
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = rest.iter().take(ROWS).take_while(|row| {
            bytes += row.message.payload.len() + row.message.headers.len();
            bytes <= BYTES
        });
        let (group, later) = rest.split_at(fits.count().max(1));
        table.row_group(|columns| write_group(group, setting, columns))?;
        rest = later;
    }
    table.finish()
}

fn write_group(rows: &[Row<'_>], setting: Setting<'_>, to: &mut Columns<'_>) -> Result<()> {
    let Setting { bytes, segment, payloads } = setting;
    let messages = || rows.iter().map(|row| row.message);
    to.texts(messages().map(|m| bytes.slice_ref(m.address.as_bytes())))?;
    to.longs(messages().map(|m| m.msg_id))?;
    to.ints(messages().map(|m| u32::from(m.level)))?;
    to.texts(messages().map(|m| Bytes::from_static(priority(&m).as_bytes())))?;
    to.optional_texts(
        messages().map(|m| (!m.key.is_empty()).then(|| bytes.slice_ref(m.key.as_bytes()))),
    )?;
    to.lists(messages().map(|m| tags(m.tags).map(|t| bytes.slice_ref(t.as_bytes()))))?;
    to.lists(messages().map(|m| headers(m.headers).map(|(name, _)| owned(name))))?;
    to.lists(messages().map(|m| headers(m.headers).map(|(_, value)| owned(value))))?;
    to.optional_texts(messages().map(|m| payloads.then(|| bytes.slice_ref(m.payload))))?;
    to.longs(messages().map(|m| m.payload.len() as u64))?;
    to.longs(messages().map(|m| m.sent_ms))?;
    to.longs(messages().map(|m| m.create_ms))?;
    to.optional_longs(messages().map(|m| (m.expires_ms > 0).then_some(m.expires_ms)))?;
    to.longs(rows.iter().map(|_| u64::from(segment)))?;
    to.longs(rows.iter().map(|row| u64::from(row.offset)))
}

fn priority(message: &Message<'_>) -> &'static str {
    Level::new(message.level).unwrap_or(Level::LOWEST).name()
}

fn tags(tags: &str) -> impl Iterator<Item = &str> {
    tags.split(',').map(str::trim).filter(|tag| !tag.is_empty())
}

/// Names and values of header lines. What is no UTF-8 is replaced: the columns are text.
fn headers(lines: &[u8]) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    let lines = lines.split(|&byte| byte == b'\n');
    let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    lines.filter(|line| !line.is_empty()).map(|line| {
        let colon = line.iter().position(|&byte| byte == b':').unwrap_or(line.len());
        let (name, value) = (&line[..colon], line.get(colon + 1..).unwrap_or_default());
        let value = value.strip_prefix(b" ").unwrap_or(value);
        (String::from_utf8_lossy(name), String::from_utf8_lossy(value))
    })
}

fn owned(text: Cow<'_, str>) -> Bytes {
    Bytes::from(text.into_owned())
}
