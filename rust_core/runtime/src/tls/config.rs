//! Settings that all TLS connections share: certificate, key, authorities, versions and suites.
//!
//! Owns the reading of files and the texts that say which of them cannot be used.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};

use super::certificate;
use super::error::TlsError;
use super::suites;

/// The oldest version of TLS that is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MinVersion {
    /// TLS 1.2 and 1.3.
    #[default]
    V12,
    /// TLS 1.3 alone.
    V13,
}

impl FromStr for MinVersion {
    type Err = TlsError;

    fn from_str(text: &str) -> Result<Self, TlsError> {
        match text {
            "1.2" => Ok(Self::V12),
            "1.3" => Ok(Self::V13),
            other => Err(TlsError::Version(other.to_owned())),
        }
    }
}

/// What a server is told about TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// The server's certificate and those that lead to its authority, PEM.
    pub cert_file: PathBuf,
    /// The key of the certificate, PEM, not encrypted.
    pub key_file: PathBuf,
    /// Authorities for the certificates of clients, PEM; without it those of the system.
    pub ca_file: Option<PathBuf>,
    /// Clients must show a certificate that one of the authorities has signed.
    pub verify: bool,
    /// The oldest version spoken.
    pub min_version: MinVersion,
    /// The suites offered, by IANA's names, the preferred first. A version of TLS that none is of keeps all of its own.
    pub cipher_suites: Vec<String>,
}

/// Settings that were found usable. Cheap to clone.
#[derive(Debug, Clone)]
pub struct TlsConfig {
    pub(super) server: Arc<ServerConfig>,
}

impl TlsConfig {
    /// Reads all files. The error names the file or the suite that cannot be used.
    pub fn new(settings: &TlsSettings) -> Result<Self, TlsError> {
        let certificate = read(&settings.cert_file)?;
        let key = read(&settings.key_file)?;
        let provider = Arc::new(suites::provider(&settings.cipher_suites)?);
        let pair = pair(&certificate, &key, &provider).map_err(|reason| TlsError::NotAPair {
            cert_file: settings.cert_file.clone(),
            key_file: settings.key_file.clone(),
            reason,
        })?;
        let authorities = match &settings.ca_file {
            Some(file) => Some(authorities(file)?),
            None if settings.verify => Some(authorities_of_system()?),
            None => None,
        };
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions(settings.min_version))?;
        let builder = match authorities.filter(|_| settings.verify) {
            Some(roots) => builder.with_client_cert_verifier(
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                    .build()
                    .map_err(|error| TlsError::NoAuthorities { reason: error.to_string() })?,
            ),
            None => builder.with_no_client_auth(),
        };
        let mut server = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(pair)));
        server.ignore_client_order = !settings.cipher_suites.is_empty();
        // Every connection is checked in full: certificates end, and a reload may name other authorities.
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        Ok(Self { server: Arc::new(server) })
    }
}

static VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];

fn versions(oldest: MinVersion) -> &'static [&'static SupportedProtocolVersion] {
    match oldest {
        MinVersion::V12 => &VERSIONS,
        MinVersion::V13 => &VERSIONS[..1],
    }
}

fn pair(certificate: &[u8], key: &[u8], provider: &CryptoProvider) -> Result<CertifiedKey, String> {
    let chain = certificates(certificate)?;
    let Some(own) = chain.first() else {
        return Err("there is no certificate in the first".to_owned());
    };
    let public = certificate::public_key(own).map_err(|error| error.to_string())?;
    let key = private_key(key)?;
    let signer = provider
        .key_provider
        .load_private_key(key)
        .map_err(|_| "the key is of a kind that is not supported, or broken".to_owned())?;
    // What rustls would do by itself, except that it also refuses certificates of version 1.
    match signer.public_key() {
        Some(own) if own.as_ref() != public => {
            Err("the key is not that of the certificate".to_owned())
        }
        _ => Ok(CertifiedKey::new(chain, signer)),
    }
}

fn private_key(text: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    match PrivateKeyDer::from_pem_slice(text) {
        Ok(key) => Ok(key),
        // Both ways of encrypting one say so in capitals.
        Err(_) if contains(text, b"ENCRYPTED") => {
            Err("the key is encrypted, and mq9 takes no password for it".to_owned())
        }
        Err(pem::Error::NoItemsFound) => Err("there is no key in the second".to_owned()),
        Err(error) => Err(format!("the key is broken: {error}")),
    }
}

fn authorities(file: &Path) -> Result<RootCertStore, TlsError> {
    let unusable = |reason: String| TlsError::NoCertificates { file: file.to_owned(), reason };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&read(file)?).map_err(unusable)? {
        roots.add(certificate).map_err(|error| unusable(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(unusable("there is none in it".to_owned()));
    }
    Ok(roots)
}

fn authorities_of_system() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // One that cannot be read is none of ours to refuse.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let reason = match found.errors.first() {
            Some(error) => format!("those of the system cannot be read: {error}"),
            None => "the system has none".to_owned(),
        };
        return Err(TlsError::NoAuthorities { reason });
    }
    Ok(roots)
}

fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    CertificateDer::pem_slice_iter(text)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("a certificate is broken: {error}"))
}

fn read(file: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(file).map_err(|error| TlsError::Unreadable {
        file: file.to_owned(),
        reason: without_number(error.to_string()),
    })
}

/// "No such file or directory (os error 2)" without what only programs want to know.
fn without_number(mut text: String) -> String {
    if let Some(end) = text.rfind(" (os error ") {
        text.truncate(end);
    }
    text
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
