//! Errors of TLS, in words for those who run the broker.

use std::path::PathBuf;

use super::certificate::CertificateError;

/// Settings that cannot be used, or a connection that must end.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be opened or read.
    #[error("cannot read {file}: {reason}", file = .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// The certificate, or its key, or the two together cannot be used.
    #[error(
        "{cert} and {key} are not a certificate and its key in PEM form: {reason}",
        cert = .cert_file.display(),
        key = .key_file.display()
    )]
    NotAPair {
        /// The file of the certificate.
        cert_file: PathBuf,
        /// The file of the key.
        key_file: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A file of authorities without a usable certificate.
    #[error("{file} holds no certificates in PEM form: {reason}", file = .file.display())]
    NoCertificates {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Clients must show a certificate, and nobody could have signed it.
    #[error("verify needs authorities, and {reason}; name a file of them with ca_file")]
    NoAuthorities {
        /// Why there are none.
        reason: String,
    },
    /// A version of TLS that is not spoken.
    #[error("min_version '{0}' is neither 1.2 nor 1.3")]
    Version(String),
    /// A cipher suite that is not offered.
    #[error("{0}")]
    CipherSuite(String),
    /// The peer does not keep to TLS, or refuses what the server says.
    #[error("{0}")]
    Protocol(#[from] rustls::Error),
    /// The certificate of a client cannot be read.
    #[error("the client's certificate cannot be read: {0}")]
    ClientCertificate(#[from] CertificateError),
    /// A message of the TLS protocol that comes in too many pieces.
    #[error("more than {limit} bytes of a message of TLS without its end")]
    MessageTooLong {
        /// The most that is kept.
        limit: usize,
    },
    /// Something was to be sent before the handshake was complete.
    #[error("nothing can be sent before the handshake is complete")]
    StillHandshaking,
    /// Something was to be sent on a connection whose end has been announced.
    #[error("nothing can be sent after the end of the connection")]
    Closed,
    /// The keys of a connection have encrypted as much as they safely can.
    #[error("the keys of the connection are used up")]
    KeysUsedUp,
}
