//! One connection's socket, and how bytes pass through it: as they are, or encrypted.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::poll::Interest;
use crate::tls::{TlsConfig, TlsLayer};

/// The first byte of a client that begins a TLS handshake.
pub const HANDSHAKE: u8 = 0x16;

/// Why a connection is not read from. It is read again when none is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// Somebody decides whether to let it in.
    Deciding = 1,
    /// It publishes faster than others read.
    Stalled = 2,
    /// It has not taken what it asked for.
    Held = 4,
    /// Whoever takes its requests wants so.
    Asked = 8,
}

/// How a client is met.
pub struct Greeting {
    /// The first line it is told.
    pub info: Vec<u8>,
    /// It may say nothing before it has said who it is.
    pub must_authenticate: bool,
    /// How long it may take to say so.
    pub auth_timeout_ms: Option<u64>,
    /// What is expected of it, where TLS is spoken.
    pub tls: Option<TlsTerms>,
    /// It is not read from until it is told.
    pub paused: bool,
}

/// When a client speaks TLS.
#[derive(Clone)]
pub struct TlsTerms {
    /// Certificates, versions and suites.
    pub config: TlsConfig,
    /// How long the server waits for a client that begins before it is told anything; `None` is for ever.
    pub first: Option<u64>,
    /// Clients need not speak it.
    pub plain_allowed: bool,
    /// How long the handshake may take.
    pub timeout_ms: u64,
}

/// What lies between a socket and the engine.
pub enum Layer {
    /// Nothing.
    Plain,
    /// It is not known yet: the first byte tells.
    Unknown(TlsTerms),
    /// Encryption, agreed or on the way there.
    Tls(Box<TlsLayer>),
}

/// One connection's socket.
pub struct Link {
    pub cid: u64,
    pub socket: OwnedFd,
    pub layer: Layer,
    /// What the client is told first, until it was.
    pub info: Option<Vec<u8>>,
    pub auth_timeout_ms: Option<u64>,
    /// How long its client may take for what is expected of it next, until that time begins.
    pub patience_ms: Option<u64>,
    /// Bytes for the socket that it has not taken, encrypted where they have to be.
    pub out: Vec<u8>,
    /// The socket takes no more for now.
    pub blocked: bool,
    /// Nothing is read any more, and when everything is written it ends.
    pub closing: bool,
    pauses: u8,
    pub watched: Interest,
}

impl Link {
    pub fn new(cid: u64, socket: OwnedFd, greeting: Greeting) -> Link {
        Link {
            cid,
            socket,
            layer: greeting.tls.map_or(Layer::Plain, Layer::Unknown),
            info: Some(greeting.info),
            auth_timeout_ms: greeting.auth_timeout_ms,
            patience_ms: None,
            out: Vec::new(),
            blocked: false,
            closing: false,
            pauses: if greeting.paused { Pause::Asked as u8 } else { 0 },
            watched: Interest::default(),
        }
    }

    pub fn pause(&mut self, why: Pause) {
        self.pauses |= why as u8;
    }

    pub fn resume(&mut self, why: Pause) {
        self.pauses &= !(why as u8);
    }

    pub fn is_read(&self) -> bool {
        self.pauses == 0 && !self.closing
    }

    /// What the socket is to be watched for.
    pub fn interest(&self) -> Interest {
        Interest { read: self.is_read(), write: self.blocked }
    }

    /// Whether the layer passes bytes on yet.
    pub fn is_established(&self) -> bool {
        match &self.layer {
            Layer::Plain => true,
            Layer::Unknown(_) => false,
            Layer::Tls(tls) => !tls.is_handshaking(),
        }
    }
}

/// What reading from a socket has brought.
pub enum Received {
    Bytes(usize),
    Nothing,
    /// The client will send no more.
    End,
    Broken,
}

/// Reads once, without waiting.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Received {
    match recv(socket, buffer, RecvFlags::DONTWAIT) {
        Ok((_, 0)) => Received::End,
        Ok((_, bytes)) => Received::Bytes(bytes),
        Err(Errno::AGAIN | Errno::INTR) => Received::Nothing,
        Err(_) => Received::Broken,
    }
}

/// Writes without waiting: how many bytes were taken, or nothing if the socket is broken.
pub fn write(socket: impl AsFd, bytes: &[u8]) -> Option<usize> {
    match send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        Ok(sent) => Some(sent),
        Err(Errno::AGAIN | Errno::INTR) => Some(0),
        Err(_) => None,
    }
}
