//! Cipher suites by the names that IANA gave them.

use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{ALL_CIPHER_SUITES, default_provider};
use rustls::{CipherSuite, SupportedCipherSuite};

use super::error::TlsError;

/// The name IANA gave a suite. `rustls` has its own for those of TLS 1.3.
pub(super) fn name(suite: CipherSuite) -> &'static str {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        other => other.as_str().unwrap_or(""),
    }
}

/// The names of all suites that can be chosen, the preferred first.
pub fn cipher_suite_names() -> Vec<&'static str> {
    ALL_CIPHER_SUITES.iter().map(|suite| name(suite.suite())).collect()
}

/// Whether a suite of this name can be chosen; the error says why not.
pub fn check_cipher_suite(wanted: &str) -> Result<(), TlsError> {
    find(wanted).map(drop)
}

/// The provider with the suites chosen, in their order. A version of TLS of which no suite is chosen keeps all of its
/// own: which versions are spoken is another setting.
pub(super) fn provider(chosen: &[String]) -> Result<CryptoProvider, TlsError> {
    let chosen = chosen.iter().map(|name| find(name)).collect::<Result<Vec<_>, _>>()?;
    let mut provider = default_provider();
    let (newest, older): (Vec<_>, Vec<_>) = provider.cipher_suites.drain(..).partition(is_tls13);
    for all in [newest, older] {
        let of_version = all.first().is_some_and(is_tls13);
        let mut wanted =
            chosen.iter().filter(|suite| is_tls13(suite) == of_version).copied().peekable();
        if wanted.peek().is_some() {
            provider.cipher_suites.extend(wanted);
        } else {
            provider.cipher_suites.extend(all);
        }
    }
    Ok(provider)
}

fn is_tls13(suite: &SupportedCipherSuite) -> bool {
    suite.tls13().is_some()
}

fn find(wanted: &str) -> Result<SupportedCipherSuite, TlsError> {
    if let Some(suite) = ALL_CIPHER_SUITES.iter().find(|suite| name(suite.suite()) == wanted) {
        return Ok(*suite);
    }
    let known = cipher_suite_names().join(", ");
    let refused = if wanted.starts_with("TLS_RSA_") {
        "has no forward secrecy (RSA key exchange) and is not available"
    } else if wanted.starts_with("TLS_") && wanted.contains("_CBC_") {
        "encrypts in CBC mode and is not available"
    } else {
        return Err(TlsError::CipherSuite(format!(
            "unknown cipher suite '{wanted}'; known are {known}"
        )));
    };
    Err(TlsError::CipherSuite(format!("cipher suite '{wanted}' {refused}; known are {known}")))
}
