//! Authorities, files, clients, and the wire between a client and the layer.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mq9_runtime::tls::{Progress, TlsConfig, TlsError, TlsLayer, TlsSettings};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};
use tempfile::TempDir;

pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key.
pub struct Issued {
    pub pem: String,
    pub der: CertificateDer<'static>,
    pub key_pem: String,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    pub fn issue(&self, change: impl FnOnce(&mut CertificateParams)) -> Issued {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Issued {
            pem: certificate.pem(),
            der: certificate.der().clone(),
            key_pem: key.serialize_pem(),
        }
    }
}

impl Issued {
    pub fn key(&self) -> PrivateKeyDer<'static> {
        use rustls::pki_types::pem::PemObject;
        PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).unwrap()
    }
}

/// A folder with `cert.pem`, `key.pem` and `ca.pem`, all of one authority.
pub struct World {
    pub authority: Authority,
    folder: TempDir,
}

impl World {
    pub fn new() -> Self {
        let world =
            Self { authority: Authority::new("authority"), folder: TempDir::new().unwrap() };
        let server = world.authority.issue(|_| ());
        world.write("cert.pem", &server.pem);
        world.write("key.pem", &server.key_pem);
        world.write("ca.pem", world.authority.pem());
        world
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        std::fs::write(self.path(name), content).unwrap();
        self.path(name)
    }

    pub fn settings(&self) -> TlsSettings {
        TlsSettings {
            cert_file: self.path("cert.pem"),
            key_file: self.path("key.pem"),
            ..TlsSettings::default()
        }
    }

    pub fn verifying(&self) -> TlsSettings {
        TlsSettings { ca_file: Some(self.path("ca.pem")), verify: true, ..self.settings() }
    }

    pub fn layer(&self) -> TlsLayer {
        layer(&self.settings())
    }

    /// A client of all versions, without a certificate.
    pub fn client(&self) -> Client {
        self.client_with(&[&TLS13, &TLS12], None, None)
    }

    pub fn client_showing(&self, own: &Issued) -> Client {
        self.client_with(&[&TLS13, &TLS12], None, Some(own))
    }

    pub fn client_with(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        suite: Option<&str>,
        own: Option<&Issued>,
    ) -> Client {
        Client::new(&self.client_config(versions, suite, own))
    }

    pub fn client_config(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        suite: Option<&str>,
        own: Option<&Issued>,
    ) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.0.der().clone()).unwrap();
        let mut provider = default_provider();
        if let Some(name) = suite {
            let wanted = |suite: &rustls::SupportedCipherSuite| {
                let own = suite.suite().as_str().unwrap().replace("TLS13_", "TLS_");
                own == name
            };
            provider.cipher_suites.retain(wanted);
            assert_eq!(provider.cipher_suites.len(), 1, "{name}");
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        Arc::new(match own {
            Some(own) => builder.with_client_auth_cert(vec![own.der.clone()], own.key()).unwrap(),
            None => builder.with_no_client_auth(),
        })
    }
}

pub fn layer(settings: &TlsSettings) -> TlsLayer {
    TlsLayer::new(&TlsConfig::new(settings).unwrap()).unwrap()
}

pub struct Client(pub ClientConnection);

impl Client {
    pub fn new(config: &Arc<ClientConfig>) -> Self {
        let name = ServerName::try_from("localhost").unwrap();
        Self(ClientConnection::new(config.clone(), name).unwrap())
    }

    /// What the client wants to send, encrypted.
    pub fn output(&mut self) -> Vec<u8> {
        let mut wire = Vec::new();
        while self.0.wants_write() {
            self.0.write_tls(&mut wire).unwrap();
        }
        wire
    }

    /// Encrypts, however much it is.
    pub fn says(&mut self, plain: &[u8]) -> Vec<u8> {
        self.0.set_buffer_limit(None);
        self.0.writer().write_all(plain).unwrap();
        self.output()
    }

    /// Takes what came from the server; what it says.
    pub fn hears(&mut self, mut wire: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        let mut plain = Vec::new();
        while !wire.is_empty() {
            self.0.read_tls(&mut wire).unwrap();
            let state = self.0.process_new_packets()?;
            let start = plain.len();
            plain.resize(start + state.plaintext_bytes_to_read(), 0);
            self.0.reader().read_exact(&mut plain[start..]).unwrap();
        }
        Ok(plain)
    }
}

/// Goes through the handshake; the layer gets pieces of a size that `piece` says. Afterwards nothing is on the way.
pub fn shake_hands_in(
    layer: &mut TlsLayer,
    client: &mut Client,
    mut piece: impl FnMut() -> usize,
) -> Result<Progress, TlsError> {
    let mut seen = Progress::default();
    let mut plain = Vec::new();
    loop {
        let wire = client.output();
        let mut rest = wire.as_slice();
        while !rest.is_empty() {
            let (now, later) = rest.split_at(piece().clamp(1, rest.len()));
            let progress = layer.receive(now, &mut plain)?;
            assert!(!(seen.handshake_done && progress.handshake_done), "done twice");
            seen.handshake_done |= progress.handshake_done;
            rest = later;
        }
        let mut answer = Vec::new();
        layer.take_pending(&mut answer);
        assert!(!layer.has_pending());
        if wire.is_empty() && answer.is_empty() {
            assert!(plain.is_empty());
            return Ok(seen);
        }
        // A client that does not like the answer still has its alert to send.
        client.hears(&answer).ok();
    }
}

pub fn shake_hands(layer: &mut TlsLayer, client: &mut Client) -> Result<Progress, TlsError> {
    shake_hands_in(layer, client, || usize::MAX)
}

/// A layer and a client that have agreed.
pub fn connected(world: &World) -> (TlsLayer, Client) {
    let (mut layer, mut client) = (world.layer(), world.client());
    assert!(shake_hands(&mut layer, &mut client).unwrap().handshake_done);
    (layer, client)
}

/// Numbers that look random and are the same in every run.
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.below(256) as u8).collect()
    }
}
