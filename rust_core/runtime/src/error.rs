//! Why a call to an open store failed, beyond what the store itself says.

use mq9_core::error::Error;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The store refused it.
    #[error(transparent)]
    Refused(#[from] Error),
    /// The store is closed.
    #[error("the store is closed")]
    Closed,
    /// A panic left the store in the middle of a change.
    #[error(
        "an internal error left the store in the middle of a change: close it and open it again"
    )]
    Broken,
    /// The same, noticed when it was closed.
    #[error(
        "an internal error left the store in the middle of a change: it was closed without being saved"
    )]
    BrokenAtClose,
    /// The store was opened to be read only.
    #[error("the store was opened to be read only: nothing can be changed")]
    ReadOnly,
}

impl Failure {
    /// The operating system refused something around the store's files.
    pub fn io(action: &'static str, file: impl Into<String>, source: std::io::Error) -> Failure {
        Failure::Refused(Error::Io { action, file: file.into(), source })
    }
}

/// The result of a call.
pub type Result<T> = std::result::Result<T, Failure>;
