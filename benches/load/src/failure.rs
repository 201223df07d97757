//! What can go wrong while a load runs, in words for whoever started it.

use std::io;
use std::time::Duration;

/// Ends the run: a load that was not carried in full has no rate.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The command line is wrong.
    #[error("{0}")]
    Usage(String),
    /// The system refused something.
    #[error("{doing}: {cause}")]
    System {
        /// What was being done.
        doing: String,
        /// What the system said.
        cause: io::Error,
    },
    /// The server answered what no correct server answers to this load.
    #[error("the server {0}")]
    Server(String),
    /// Nothing happened for too long.
    #[error("the server was silent for {time:?}: {state}")]
    Silent {
        /// How long was waited.
        time: Duration,
        /// What had not arrived.
        state: String,
    },
}

/// Adds to a system error what was being done.
pub trait Doing<T> {
    /// The value, or the error with `what` in front.
    fn doing(self, what: &str) -> Result<T, Failure>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, what: &str) -> Result<T, Failure> {
        self.map_err(|cause| Failure::System { doing: what.to_owned(), cause: cause.into() })
    }
}
