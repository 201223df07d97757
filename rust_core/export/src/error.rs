//! Errors of an export, and what to do about them.

use std::io;

/// Why an export did not get on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] mq9_core::error::Error),
    /// A file of the export folder or the data directory did not do what was asked.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: String,
        /// The cause.
        source: io::Error,
    },
    /// The Parquet writer failed.
    #[error("cannot write {path}: {cause}")]
    Parquet {
        /// The file.
        path: String,
        /// The cause.
        cause: parquet::errors::ParquetError,
    },
    /// Somebody else exports to the folder.
    #[error("another process exports to this folder; wait for it, or give another folder")]
    Locked,
    /// The manifest does not say how far the export is.
    #[error(
        "manifest.json of the export folder cannot be used: {0}; put it back, or export to an empty folder"
    )]
    Manifest(String),
    /// The folder has the export of another store.
    #[error(
        "the export folder holds another store's export (segment {segment} is not the one it knows); \
         give another folder"
    )]
    OtherStore {
        /// The segment in which they differ.
        segment: u32,
    },
    /// An option that was given before is given differently.
    #[error(
        "this export was begun with {name} {before}, not {now}; give the same, or another folder"
    )]
    Differs {
        /// The option.
        name: &'static str,
        /// What the manifest says.
        before: String,
        /// What was asked for.
        now: String,
    },
    /// The caller asked for it.
    #[error("the export was stopped; what it had finished counts")]
    Stopped,
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn io(action: &'static str, path: impl Into<String>, source: io::Error) -> Error {
        Error::Io { action, path: path.into(), source }
    }
}
