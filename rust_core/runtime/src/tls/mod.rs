//! TLS: settings, one connection's encryption, and who a client's certificate names.
//!
//! Sans-IO: bytes come in and go out through buffers of the caller. Must not know sockets, the protocol above, users.

mod certificate;
mod config;
mod error;
mod layer;
mod suites;

pub use certificate::{Certificate, CertificateError};
pub use config::{MinVersion, TlsConfig, TlsSettings};
pub use error::TlsError;
pub use layer::{Progress, TlsFacts, TlsLayer};
pub use suites::{check_cipher_suite, cipher_suite_names};
