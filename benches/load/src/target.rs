//! Where the load goes, and the bytes on the way there: plain, or in TLS.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::failure::{Doing as _, Failure};

/// A server may take so long for a handshake.
const PATIENCE: Duration = Duration::from_secs(10);

/// One read of TLS brings at most so much: a record, and the rest of one.
const LEAST_ROOM: usize = 32 * 1024;

/// A read that brings less has emptied the socket.
const FULL_READ: usize = 4096;

/// The server under load.
#[derive(Clone, Debug)]
pub struct Target {
    address: String,
    tls: Option<Arc<ClientConfig>>,
}

impl Target {
    /// A server at `address`, in TLS if there is a file with the certificate to trust.
    pub fn new(address: String, ca: Option<&str>) -> Result<Self, Failure> {
        let Some(ca) = ca else { return Ok(Self { address, tls: None }) };
        let unusable =
            |cause: &dyn std::fmt::Display| Failure::Usage(format!("--ca {ca}: {cause}"));
        let certificate = CertificateDer::from_pem_file(ca).map_err(|e| unusable(&e))?;
        let mut roots = RootCertStore::empty();
        roots.add(certificate).map_err(|e| unusable(&e))?;
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        Ok(Self { address, tls: Some(Arc::new(config)) })
    }

    /// A blocking connection to a server that speaks another protocol than NATS.
    pub fn connect_bare(&self) -> Result<Stream, Failure> {
        if self.tls.is_some() {
            return Err(Failure::Usage(
                "--ca: only servers that speak NATS are spoken to in TLS".to_owned(),
            ));
        }
        self.connect()
    }

    fn connect(&self) -> Result<Stream, Failure> {
        let socket =
            TcpStream::connect(&self.address).doing(&format!("connect to {}", self.address))?;
        socket.set_nodelay(true).doing("set TCP_NODELAY")?;
        socket.set_read_timeout(Some(PATIENCE)).doing("set a timeout")?;
        Ok(Stream { socket, tls: None })
    }

    /// A blocking connection to a server that speaks NATS, which goes on in TLS after `INFO`.
    pub fn connect_nats(&self) -> Result<Stream, Failure> {
        let mut stream = self.connect()?;
        let Some(config) = &self.tls else { return Ok(stream) };
        let mut byte = [0];
        while byte != *b"\n" {
            stream.socket.read_exact(&mut byte).doing("receive INFO")?;
        }
        let host = self.address.rsplit_once(':').map_or(&self.address[..], |(host, _)| host);
        let name = ServerName::try_from(host.to_owned())
            .map_err(|e| Failure::Usage(format!("--server {host}: {e}")))?;
        let mut tls = ClientConnection::new(Arc::clone(config), name)
            .map_err(|e| Failure::Server(format!("could not be spoken to in TLS: {e}")))?;
        tls.set_buffer_limit(None);
        while tls.is_handshaking() {
            tls.complete_io(&mut stream.socket).doing("shake hands")?;
        }
        stream.tls = Some(Box::new(tls));
        Ok(stream)
    }
}

/// A connection's bytes.
#[derive(Debug)]
pub struct Stream {
    /// What is waited for.
    pub socket: TcpStream,
    tls: Option<Box<ClientConnection>>,
}

impl Stream {
    /// Reads what has arrived, as far as there is room.
    pub fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.socket.read(room) };
        let (mut length, mut more) = (0, true);
        // The system tells of what stays in the socket, and nobody of what stays in here: nothing may.
        while length == 0 || (more && room.len() - length >= LEAST_ROOM) {
            match tls.read_tls(&mut self.socket) {
                Ok(0) => return Ok(length),
                Ok(read) => more = read >= FULL_READ,
                Err(error) if length > 0 && error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
            let state = tls.process_new_packets().map_err(io::Error::other)?;
            let end = length + state.plaintext_bytes_to_read();
            let Some(place) = room.get_mut(length..end) else {
                return Err(io::Error::other("more arrived than there is room for"));
            };
            tls.reader().read_exact(place)?;
            length = end;
        }
        Ok(length)
    }

    /// Takes bytes to send; in TLS all of them, and `flush` sends them.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.socket.write(bytes),
            Some(tls) => tls.writer().write(bytes),
        }
    }

    /// Sends what was taken.
    pub fn flush(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        while tls.wants_write() {
            tls.write_tls(&mut self.socket)?;
        }
        Ok(())
    }

    /// Whether there is nothing left to flush.
    pub fn is_flushed(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| !tls.wants_write())
    }
}
