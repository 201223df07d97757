//! The columns of the two datasets, and how they are written. `docs/export.md` has the table for readers.

use std::sync::Arc;

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::SortingColumn;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{ColumnPath, TypePtr};

use crate::error::{Error, Result};

const MESSAGES: &str = "message messages {
    required binary mailbox (STRING);
    required int64 msg_id;
    required int32 level;
    required binary priority (STRING);
    optional binary key (STRING);
    required group tags (LIST) { repeated group list { required binary element (STRING); } }
    required group headers (LIST) {
        repeated group list {
            required group element {
                required binary name (STRING);
                required binary value (STRING);
            }
        }
    }
    optional binary payload;
    required int64 size;
    required int64 sent (TIMESTAMP(MILLIS,true));
    required int64 visible (TIMESTAMP(MILLIS,true));
    optional int64 expires (TIMESTAMP(MILLIS,true));
    required int64 segment;
    required int64 offset;
}";

const EVENTS: &str = "message events {
    required binary kind (STRING);
    required binary mailbox (STRING);
    optional int64 msg_id;
    optional int32 level;
    optional binary group (STRING);
    optional binary member (STRING);
    required int64 time (TIMESTAMP(MILLIS,true));
    optional int32 count;
    optional binary target (STRING);
    optional int64 size;
    required int64 segment;
    required int64 offset;
    required int32 seq;
    optional binary cause (STRING);
}";

/// Columns that ascend, or nearly: differences are small.
const ASCENDING: [&str; 6] = ["msg_id", "sent", "visible", "time", "segment", "offset"];

/// A dataset's schema and how it is written.
pub struct Schema {
    /// The columns.
    pub columns: TypePtr,
    /// How they are written.
    pub properties: WriterPropertiesPtr,
}

/// Messages, sorted by mailbox and id.
pub fn messages() -> Result<Schema> {
    schema(MESSAGES, [0, 1])
}

/// Events, sorted by mailbox and time.
pub fn events() -> Result<Schema> {
    schema(EVENTS, [1, 6])
}

fn schema(text: &str, sorted_by: [i32; 2]) -> Result<Schema> {
    let failed = |cause| Error::Parquet { path: "a schema".to_owned(), cause };
    let columns = Arc::new(parse_message_type(text).map_err(failed)?);
    let zstd = Compression::ZSTD(ZstdLevel::try_new(1).map_err(failed)?);
    let sorted = sorted_by.map(|column_idx| SortingColumn {
        column_idx,
        descending: false,
        nulls_first: false,
    });
    // Payloads are what most bytes are, seldom alike, and nobody prunes by them.
    let payload = ColumnPath::from("payload");
    let mut properties = WriterProperties::builder()
        .set_compression(zstd)
        .set_created_by(concat!("mq9 version ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_sorting_columns(Some(sorted.into()))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_column_dictionary_enabled(payload.clone(), false)
        .set_column_statistics_enabled(payload, EnabledStatistics::None);
    for name in ASCENDING {
        let column = ColumnPath::from(name);
        properties = properties
            .set_column_dictionary_enabled(column.clone(), false)
            .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED);
    }
    Ok(Schema { columns, properties: Arc::new(properties.build()) })
}
