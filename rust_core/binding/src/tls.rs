//! The classes `TlsConfig` and `Certificate`.

use std::path::PathBuf;

use mq9_runtime::tls;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Settings of TLS whose files were read and found usable.
#[pyclass(frozen, module = "mq9._core")]
pub struct TlsConfig(pub tls::TlsConfig);

#[pymethods]
impl TlsConfig {
    #[new]
    #[pyo3(signature = (
        *, cert_file, key_file, ca_file=None, verify=false, min_version="1.2", cipher_suites=Vec::new()
    ))]
    fn new(
        py: Python<'_>,
        cert_file: PathBuf,
        key_file: PathBuf,
        ca_file: Option<PathBuf>,
        verify: bool,
        min_version: &str,
        cipher_suites: Vec<String>,
    ) -> PyResult<TlsConfig> {
        let min_version = min_version.parse().map_err(refused)?;
        let settings =
            tls::TlsSettings { cert_file, key_file, ca_file, verify, min_version, cipher_suites };
        py.detach(|| tls::TlsConfig::new(&settings)).map(TlsConfig).map_err(refused)
    }

    /// Raises if no cipher suite of this name can be chosen.
    #[staticmethod]
    fn check_cipher_suite(name: &str) -> PyResult<()> {
        tls::check_cipher_suite(name).map_err(refused)
    }
}

/// The names in a certificate.
#[pyclass(frozen, get_all, module = "mq9._core")]
pub struct Certificate {
    /// The parts of the subject in their order, each a list of short names and values.
    subject: Vec<Vec<(String, String)>>,
    /// Alternative names that are email addresses.
    emails: Vec<String>,
    /// Alternative names that are names of hosts.
    dns_names: Vec<String>,
    /// Alternative names that are URIs.
    uris: Vec<String>,
}

#[pymethods]
impl Certificate {
    #[new]
    #[pyo3(signature = (*, subject=Vec::new(), emails=Vec::new(), dns_names=Vec::new(), uris=Vec::new()))]
    fn new(
        subject: Vec<Vec<(String, String)>>,
        emails: Vec<String>,
        dns_names: Vec<String>,
        uris: Vec<String>,
    ) -> Certificate {
        Certificate { subject, emails, dns_names, uris }
    }

    /// Reads a certificate as it goes over the wire.
    #[staticmethod]
    fn from_der(der: &[u8]) -> PyResult<Certificate> {
        Ok(tls::Certificate::from_der(der).map_err(refused)?.into())
    }

    /// Reads the first certificate of a text in PEM form.
    #[staticmethod]
    fn from_pem(pem: &[u8]) -> PyResult<Certificate> {
        Ok(tls::Certificate::from_pem(pem).map_err(refused)?.into())
    }
}

impl From<tls::Certificate> for Certificate {
    fn from(certificate: tls::Certificate) -> Certificate {
        let tls::Certificate { subject, emails, dns_names, uris } = certificate;
        Certificate { subject, emails, dns_names, uris }
    }
}

fn refused(error: impl ToString) -> PyErr {
    PyValueError::new_err(error.to_string())
}
