//! Rows to columns: one Parquet file from any rows, column by column and row group by row group. Knows no dataset.

use std::io::{self, Write};
use std::sync::Arc;

use bytes::Bytes;
use mq9_core::disk::DiskFile;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};

use crate::schema::Schema;

/// A file being written from its beginning on.
pub struct Sink {
    file: Arc<dyn DiskFile>,
    at: u64,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_at(bytes, self.at)?;
        self.at += bytes.len() as u64;
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
        let writer = SerializedFileWriter::new(Sink { file, at: 0 }, columns, properties)?;
        Ok(Table { writer })
    }

    /// Writes a row group; `write` gives every column in order.
    pub fn row_group(&mut self, write: impl FnOnce(&mut Columns<'_>) -> Result<()>) -> Result<()> {
        let mut columns = Columns { group: self.writer.next_row_group()? };
        write(&mut columns)?;
        columns.group.close()?;
        Ok(())
    }

    /// Ends the file; returns its bytes.
    pub fn finish(self) -> Result<u64> {
        Ok(self.writer.into_inner()?.at)
    }
}

/// The columns of a row group, to be written in order.
pub struct Columns<'w> {
    group: SerializedRowGroupWriter<'w, Sink>,
}

impl Columns<'_> {
    fn column<T: DataType>(
        &mut self,
        values: &[T::T],
        def: Option<&[i16]>,
        rep: Option<&[i16]>,
    ) -> Result<()> {
        let column = self.group.next_column()?;
        let mut column = column
            .ok_or_else(|| ParquetError::General("more columns than the schema has".into()))?;
        column.typed::<T>().write_batch(values, def, rep)?;
        column.close()
    }

    fn optional<T: DataType>(&mut self, values: impl Iterator<Item = Option<T::T>>) -> Result<()> {
        let (mut present, mut def) = (Vec::new(), Vec::new());
        for value in values {
            def.push(i16::from(value.is_some()));
            present.extend(value);
        }
        self.column::<T>(&present, Some(&def), None)
    }

    /// Numbers of 64 bits.
    pub fn longs(&mut self, values: impl Iterator<Item = u64>) -> Result<()> {
        let values: Vec<i64> = values.map(|value| value as i64).collect();
        self.column::<Int64Type>(&values, None, None)
    }

    /// Numbers of 64 bits, or none.
    pub fn optional_longs(&mut self, values: impl Iterator<Item = Option<u64>>) -> Result<()> {
        self.optional::<Int64Type>(values.map(|value| value.map(|value| value as i64)))
    }

    /// Numbers of 32 bits.
    pub fn ints(&mut self, values: impl Iterator<Item = u32>) -> Result<()> {
        let values: Vec<i32> = values.map(|value| value as i32).collect();
        self.column::<Int32Type>(&values, None, None)
    }

    /// Numbers of 32 bits, or none.
    pub fn optional_ints(&mut self, values: impl Iterator<Item = Option<u32>>) -> Result<()> {
        self.optional::<Int32Type>(values.map(|value| value.map(|value| value as i32)))
    }

    /// Bytes or texts.
    pub fn texts(&mut self, values: impl Iterator<Item = Bytes>) -> Result<()> {
        let values: Vec<ByteArray> = values.map(ByteArray::from).collect();
        self.column::<ByteArrayType>(&values, None, None)
    }

    /// Bytes or texts, or none.
    pub fn optional_texts(&mut self, values: impl Iterator<Item = Option<Bytes>>) -> Result<()> {
        self.optional::<ByteArrayType>(values.map(|value| value.map(ByteArray::from)))
    }

    /// Lists of texts.
    pub fn lists(&mut self, lists: impl Iterator<Item = Vec<Bytes>>) -> Result<()> {
        let (mut values, mut def, mut rep) = (Vec::new(), Vec::new(), Vec::new());
        for list in lists {
            if list.is_empty() {
                def.push(0);
                rep.push(0);
            }
            for (at, value) in list.into_iter().enumerate() {
                def.push(1);
                rep.push(i16::from(at > 0));
                values.push(ByteArray::from(value));
            }
        }
        self.column::<ByteArrayType>(&values, Some(&def), Some(&rep))
    }
}
