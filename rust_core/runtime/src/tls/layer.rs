//! One connection's encryption, without its socket.
//!
//! Owns the state of `rustls` and the bytes it still needs: an incomplete record, or the beginning of a handshake
//! message that comes in several. What has been decrypted is the caller's at once.

use rustls::ProtocolVersion;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic,
};

use super::certificate::Certificate;
use super::config::TlsConfig;
use super::error::TlsError;
use super::suites;

/// The most that is kept of what cannot be worked on yet: a handshake message, which may have 64 KiB, and a record.
const MOST_HELD: usize = 96 * 1024;
/// A buffer that has grown beyond this is not kept while a connection is idle.
const KEPT_CAPACITY: usize = 4096;
/// What a record of plain text becomes longer by, at most.
const RECORD_OVERHEAD: usize = 32;
const RECORD_PLAIN: usize = 16 * 1024;
/// Room for what is sent ahead of the records asked for, such as an update of keys.
const AHEAD: usize = 256;

/// What was found in some input.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// The handshake was completed by this input.
    pub handshake_done: bool,
    /// The client has announced, now or before, that it sends nothing more. What comes behind that is ignored.
    pub client_closed: bool,
}

/// What was agreed in a handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFacts {
    /// "1.2" or "1.3".
    pub version: &'static str,
    /// The cipher suite by IANA's name.
    pub cipher_suite: &'static str,
    /// The certificate that the client has shown.
    pub client: Option<Certificate>,
}

/// One connection's encryption.
pub struct TlsLayer {
    connection: UnbufferedServerConnection,
    /// Input that is needed again.
    held: Vec<u8>,
    /// Output that nobody has asked for: of the handshake, alerts.
    pending: Vec<u8>,
    established: Option<TlsFacts>,
    client_closed: bool,
    closed: bool,
    failed: Option<TlsError>,
}

impl TlsLayer {
    /// A connection that waits for the client to begin.
    pub fn new(config: &TlsConfig) -> Result<Self, TlsError> {
        Ok(Self {
            connection: UnbufferedServerConnection::new(config.server.clone())?,
            held: Vec::new(),
            pending: Vec::new(),
            established: None,
            client_closed: false,
            closed: false,
            failed: None,
        })
    }

    /// Takes what came from the client, however it is split, and appends what it says to `plain`.
    ///
    /// Call `take_pending` afterwards. An error ends the connection: there may be an alert to be sent, and the same
    /// error comes again. What was decrypted before it is in `plain`.
    pub fn receive(&mut self, bytes: &[u8], plain: &mut Vec<u8>) -> Result<Progress, TlsError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let handshaking = self.is_handshaking();
        if !self.client_closed {
            let before = plain.len();
            self.held.extend_from_slice(bytes);
            if let Err(error) = self.work(plain).and_then(|()| self.check()) {
                self.collect_alert();
                self.held = Vec::new();
                if self.established.is_none() {
                    // What a client says counts only when it is known who the client is.
                    plain.truncate(before);
                }
                self.failed = Some(error.clone());
                return Err(error);
            }
        }
        Ok(Progress {
            handshake_done: handshaking && !self.is_handshaking(),
            client_closed: self.client_closed,
        })
    }

    /// Encrypts `plain` and appends the records to `out`, behind what was pending.
    pub fn send(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), TlsError> {
        if self.failed.is_some() || self.closed {
            return Err(TlsError::Closed);
        }
        if self.is_handshaking() {
            return Err(TlsError::StillHandshaking);
        }
        self.take_pending(out);
        let records = plain.len().div_ceil(RECORD_PLAIN);
        let mut room = plain.len() + records * RECORD_OVERHEAD + AHEAD;
        let sent = self.write(out, |writer, out, start| {
            loop {
                out.resize(start + room, 0);
                match writer.encrypt(plain, &mut out[start..]) {
                    Ok(written) => return Ok(written),
                    Err(EncryptError::InsufficientSize(more)) => room = more.required_size,
                    Err(EncryptError::EncryptExhausted) => return Err(TlsError::KeysUsedUp),
                }
            }
        });
        if let Err(error) = &sent {
            self.collect_alert();
            self.failed = Some(error.clone());
        }
        sent
    }

    /// Appends to `out` what has to be sent without being asked for: the handshake's part of the server, alerts.
    pub fn take_pending(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.pending);
        // Mostly it is needed once, for the handshake.
        self.pending = Vec::new();
    }

    /// Whether `take_pending` would append something.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether client and server have not agreed yet.
    pub fn is_handshaking(&self) -> bool {
        self.established.is_none()
    }

    /// Appends to `out` what is pending and that nothing more follows. Nothing can be sent from then on. During the
    /// handshake there is nothing that could be said.
    pub fn close(&mut self, out: &mut Vec<u8>) {
        self.take_pending(out);
        if self.closed || self.failed.is_some() || self.is_handshaking() {
            self.closed = true;
            return;
        }
        self.closed = true;
        let written = self.write(out, |writer, out, start| {
            out.resize(start + AHEAD, 0);
            // An alert is always allowed, and short.
            Ok(writer.queue_close_notify(&mut out[start..]).unwrap_or(0))
        });
        debug_assert_eq!(written, Ok(()));
    }

    /// What was agreed; nothing before the handshake is complete.
    pub fn facts(&self) -> Option<&TlsFacts> {
        self.established.as_ref()
    }

    /// Works on all that is held and can be worked on.
    fn work(&mut self, plain: &mut Vec<u8>) -> Result<(), TlsError> {
        let mut used = 0;
        loop {
            let UnbufferedStatus { discard, state } =
                self.connection.process_tls_records(&mut self.held[used..]);
            used += discard;
            match state? {
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record?;
                        used += record.discard;
                        plain.extend_from_slice(record.payload);
                    }
                }
                ConnectionState::EncodeTlsData(mut data) => encode(&mut data, &mut self.pending),
                // Whoever takes it sends it.
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::PeerClosed => self.client_closed = true,
                ConnectionState::WriteTraffic(_)
                | ConnectionState::BlockedHandshake
                | ConnectionState::Closed => break,
                other => return Err(unexpected(&other)),
            }
        }
        if self.client_closed {
            used = self.held.len();
        }
        self.held.drain(..used);
        if self.held.is_empty() && self.held.capacity() > KEPT_CAPACITY {
            self.held = Vec::new();
        }
        Ok(())
    }

    /// Notices that the handshake is complete, or a message endless. A handshake is a few messages: it ends as well.
    fn check(&mut self) -> Result<(), TlsError> {
        if self.held.len() > MOST_HELD {
            return Err(TlsError::MessageTooLong { limit: MOST_HELD });
        }
        if self.established.is_none() && !self.connection.is_handshaking() {
            self.established = Some(self.agreed()?);
        }
        Ok(())
    }

    fn agreed(&self) -> Result<TlsFacts, TlsError> {
        let shown = self.connection.peer_certificates();
        let client = shown.and_then(|chain| chain.first());
        Ok(TlsFacts {
            version: match self.connection.protocol_version() {
                Some(ProtocolVersion::TLSv1_3) => "1.3",
                _ => "1.2",
            },
            cipher_suite: self
                .connection
                .negotiated_cipher_suite()
                .map_or("", |suite| suites::name(suite.suite())),
            client: client.map(|own| Certificate::from_der(own)).transpose()?,
        })
    }

    /// After an error: what the client should be told about it.
    fn collect_alert(&mut self) {
        while self.connection.wants_write() {
            let status = self.connection.process_tls_records(&mut []);
            let Ok(ConnectionState::EncodeTlsData(mut data)) = status.state else {
                debug_assert!(false, "{:?} where an alert waits", status.state);
                return;
            };
            encode(&mut data, &mut self.pending);
        }
    }

    /// Lets `write` append to `out` once the connection is ready for it. It returns how much it has written behind the
    /// position given.
    fn write(
        &mut self,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Writer<'_>, &mut Vec<u8>, usize) -> Result<usize, TlsError>,
    ) -> Result<(), TlsError> {
        loop {
            // What is held is no whole record, or it would have been worked on: nothing can be found in it.
            let UnbufferedStatus { discard, state } =
                self.connection.process_tls_records(&mut self.held);
            debug_assert_eq!(discard, 0);
            match state? {
                ConnectionState::WriteTraffic(mut writer) => {
                    let start = out.len();
                    let written = write(&mut writer, out, start);
                    out.truncate(start + *written.as_ref().unwrap_or(&0));
                    return written.map(drop);
                }
                ConnectionState::EncodeTlsData(mut data) => encode(&mut data, out),
                ConnectionState::TransmitTlsData(data) => data.done(),
                other => return Err(unexpected(&other)),
            }
        }
    }
}

type Writer<'a> = WriteTraffic<'a, ServerConnectionData>;

fn encode(data: &mut EncodeTlsData<'_, ServerConnectionData>, out: &mut Vec<u8>) {
    let start = out.len();
    let mut room = 0;
    loop {
        out.resize(start + room, 0);
        match data.encode(&mut out[start..]) {
            Ok(written) => {
                debug_assert_eq!(written, room);
                return;
            }
            Err(EncodeError::InsufficientSize(more)) => room = more.required_size,
            Err(EncodeError::AlreadyEncoded) => {
                debug_assert!(false, "encoded twice");
                return;
            }
        }
    }
}

fn unexpected(state: &ConnectionState<'_, '_, ServerConnectionData>) -> TlsError {
    debug_assert!(false, "unexpected state {state:?}");
    TlsError::Protocol(rustls::Error::General(format!("unexpected state {state:?}")))
}
