//! Rows to columns: one Parquet file from any rows, column by column and row group by row group. Knows no dataset.

use std::io::{self, Write};
use std::sync::Arc;

use bytes::Bytes;
use mq9_core::disk::DiskFile;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::KeyValue;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};

use crate::schema::Schema;

/// Values that are given to Parquet at a time.
const BATCH: usize = 2048;

/// Where a file says what its data should sum up to: bytes from its beginning, and their CRC32C.
const CHECK: &str = "mq9.crc32c";

/// A file being written from its beginning on.
pub struct Sink {
    file: Arc<dyn DiskFile>,
    at: u64,
    crc: u32,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_at(bytes, self.at)?;
        self.at += bytes.len() as u64;
        self.crc = crc32c::crc32c_append(self.crc, bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A Parquet file being written.
pub struct Table {
    writer: SerializedFileWriter<Sink>,
}

impl Table {
    /// Begins a file.
    pub fn new(file: Arc<dyn DiskFile>, schema: &Schema) -> Result<Table> {
        let (columns, properties) = (Arc::clone(&schema.columns), Arc::clone(&schema.properties));
        let writer = SerializedFileWriter::new(Sink { file, at: 0, crc: 0 }, columns, properties)?;
        Ok(Table { writer })
    }

    /// Writes a row group; `write` gives every column in order.
    pub fn row_group(&mut self, write: impl FnOnce(&mut Columns<'_>) -> Result<()>) -> Result<()> {
        let mut columns = Columns { group: self.writer.next_row_group()? };
        write(&mut columns)?;
        columns.group.close()?;
        Ok(())
    }

    /// Ends the file; returns its bytes. Readers can check all that was written up to here.
    pub fn finish(mut self) -> Result<u64> {
        self.writer.flush()?;
        let Sink { at, crc, .. } = self.writer.inner();
        let check = KeyValue::new(CHECK.to_owned(), format!("{at}:{crc:08x}"));
        self.writer.append_key_value_metadata(check);
        Ok(self.writer.into_inner()?.at)
    }
}

/// The columns of a row group, to be written in order.
pub struct Columns<'w> {
    group: SerializedRowGroupWriter<'w, Sink>,
}

impl Columns<'_> {
    /// Writes the next column, given some values at a time: `fill` adds to the batch, and leaves it empty at the end.
    fn column<T: DataType>(&mut self, mut fill: impl FnMut(&mut Batch<T::T>)) -> Result<()> {
        let column = self.group.next_column()?;
        let mut column = column
            .ok_or_else(|| ParquetError::General("more columns than the schema has".into()))?;
        let mut batch = Batch::default();
        loop {
            batch.clear();
            fill(&mut batch);
            if batch.is_empty() {
                return column.close();
            }
            let Batch { values, def, rep } = &batch;
            column.typed::<T>().write_batch(values, levels(def), levels(rep))?;
        }
    }

    fn required<T: DataType>(&mut self, mut values: impl Iterator<Item = T::T>) -> Result<()> {
        self.column::<T>(|batch| batch.values.extend(values.by_ref().take(BATCH)))
    }

    fn optional<T: DataType>(
        &mut self,
        mut values: impl Iterator<Item = Option<T::T>>,
    ) -> Result<()> {
        self.column::<T>(|batch| {
            for value in values.by_ref().take(BATCH) {
                batch.def.push(i16::from(value.is_some()));
                batch.values.extend(value);
            }
        })
    }

    /// Numbers of 64 bits.
    pub fn longs(&mut self, values: impl Iterator<Item = u64>) -> Result<()> {
        self.required::<Int64Type>(values.map(|value| value as i64))
    }

    /// Numbers of 64 bits, or none.
    pub fn optional_longs(&mut self, values: impl Iterator<Item = Option<u64>>) -> Result<()> {
        self.optional::<Int64Type>(values.map(|value| value.map(|value| value as i64)))
    }

    /// Numbers of 32 bits.
    pub fn ints(&mut self, values: impl Iterator<Item = u32>) -> Result<()> {
        self.required::<Int32Type>(values.map(|value| value as i32))
    }

    /// Numbers of 32 bits, or none.
    pub fn optional_ints(&mut self, values: impl Iterator<Item = Option<u32>>) -> Result<()> {
        self.optional::<Int32Type>(values.map(|value| value.map(|value| value as i32)))
    }

    /// Bytes or texts.
    pub fn texts(&mut self, values: impl Iterator<Item = Bytes>) -> Result<()> {
        self.required::<ByteArrayType>(values.map(ByteArray::from))
    }

    /// Bytes or texts, or none.
    pub fn optional_texts(&mut self, values: impl Iterator<Item = Option<Bytes>>) -> Result<()> {
        self.optional::<ByteArrayType>(values.map(|value| value.map(ByteArray::from)))
    }

    /// Lists of texts.
    pub fn lists<L: Iterator<Item = Bytes>>(
        &mut self,
        mut lists: impl Iterator<Item = L>,
    ) -> Result<()> {
        self.column::<ByteArrayType>(|batch| {
            // A list is never cut: each batch begins with a row.
            for list in lists.by_ref().take(BATCH) {
                let before = batch.values.len();
                for (at, value) in list.enumerate() {
                    batch.def.push(1);
                    batch.rep.push(i16::from(at > 0));
                    batch.values.push(ByteArray::from(value));
                }
                if batch.values.len() == before {
                    batch.def.push(0);
                    batch.rep.push(0);
                }
            }
        })
    }
}

/// Some values of a column on their way: few enough that they stay in the processor's cache.
struct Batch<V> {
    values: Vec<V>,
    def: Vec<i16>,
    rep: Vec<i16>,
}

impl<V> Default for Batch<V> {
    fn default() -> Batch<V> {
        Batch { values: Vec::new(), def: Vec::new(), rep: Vec::new() }
    }
}

/// None of a column that needs none.
fn levels(found: &[i16]) -> Option<&[i16]> {
    (!found.is_empty()).then_some(found)
}

impl<V> Batch<V> {
    fn clear(&mut self) {
        self.values.clear();
        self.def.clear();
        self.rep.clear();
    }

    fn is_empty(&self) -> bool {
        self.values.is_empty() && self.def.is_empty()
    }
}
