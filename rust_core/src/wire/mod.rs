//! Bytes on disk: records, their checksums, and what each kind of record holds.
//! Pure encoding and decoding; knows neither files nor what records mean for the store.

pub mod bytes;
pub mod mailbox_ops;
pub mod op;
pub mod record;
pub mod section;
pub mod stamp;
pub mod stream_ops;
pub mod tie;
