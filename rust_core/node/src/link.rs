//! A connection to one of the servers that keep the stream: bytes in, bytes out, never waiting for long.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use serde::Deserialize;

use crate::wire::{Reader, Said};

const CONNECT_MS: u64 = 1_000;
/// The oldest version whose answers are known.
const OLDEST: (u32, u32) = (2, 15);

/// Where a server listens, and as whom we come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// `host:port`.
    pub address: String,
    /// User and password.
    pub user: Option<(String, String)>,
}

/// What a server says of itself.
#[derive(Debug, Deserialize)]
struct Info {
    #[serde(default)]
    version: String,
    #[serde(default)]
    max_payload: u64,
    #[serde(default)]
    jetstream: bool,
    #[serde(default)]
    headers: bool,
}

/// Names that are being looked up at most: each may take the system's resolver half a minute.
const LOOK_UPS: usize = 4;

/// The addresses of `host:port`. Whoever waits for a name that is looked up waits no longer than for a connection.
fn resolved(address: &str) -> io::Result<Vec<SocketAddr>> {
    static LOOKED_UP: AtomicUsize = AtomicUsize::new(0);
    if let Ok(plain) = address.parse() {
        return Ok(vec![plain]);
    }
    if LOOKED_UP.load(Ordering::SeqCst) >= LOOK_UPS {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "names are still being looked up"));
    }
    LOOKED_UP.fetch_add(1, Ordering::SeqCst);
    let ((tell, told), name) = (mpsc::channel(), address.to_owned());
    let look_up = move || {
        let addresses = name.to_socket_addrs().map(Vec::from_iter);
        LOOKED_UP.fetch_sub(1, Ordering::SeqCst);
        // Nobody may wait for it any more.
        let _ = tell.send(addresses);
    };
    let thread = std::thread::Builder::new().name("mq9-names".to_owned()).spawn(look_up);
    if let Err(error) = thread {
        LOOKED_UP.fetch_sub(1, Ordering::SeqCst);
        return Err(error);
    }
    let patience = Duration::from_millis(CONNECT_MS);
    told.recv_timeout(patience).map_err(|_| {
        io::Error::new(io::ErrorKind::TimedOut, "the name is looked up for longer than a second")
    })?
}

/// A connection.
pub struct Link {
    socket: TcpStream,
    reader: Reader,
    /// What the socket has not taken.
    pub out: Vec<u8>,
    chunk: Vec<u8>,
}

impl Link {
    /// Connects, and says who we are; the server must take messages of `payload` bytes. What is wrong with the server is
    /// an error of kind `InvalidData`.
    pub fn connect(server: &Server, payload: u64) -> io::Result<Link> {
        let addresses = resolved(&server.address)?;
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in addresses {
            match TcpStream::connect_timeout(&address, Duration::from_millis(CONNECT_MS)) {
                Ok(socket) => return Link::greet(socket, server, payload),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn greet(socket: TcpStream, server: &Server, payload: u64) -> io::Result<Link> {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(Duration::from_millis(CONNECT_MS)))?;
        let mut link =
            Link { socket, reader: Reader::default(), out: Vec::new(), chunk: vec![0; 256 << 10] };
        let info = loop {
            match link.said()? {
                Some(Said::Info(info)) => break info,
                Some(_) => return Err(wrong("the server does not introduce itself")),
                None => link.read()?,
            };
        };
        check(&serde_json::from_slice(&info)?, payload)?;
        let mut options = serde_json::json!({
            "verbose": false, "pedantic": false, "lang": "mq9", "version": env!("CARGO_PKG_VERSION"), "protocol": 1,
            "headers": true, "no_responders": true, "echo": true, "name": "mq9 node",
        });
        if let Some((user, password)) = &server.user {
            options["user"] = user.as_str().into();
            options["pass"] = password.as_str().into();
        }
        link.out.extend_from_slice(format!("CONNECT {options}\r\nPING\r\n").as_bytes());
        link.write()?;
        loop {
            match link.said()? {
                Some(Said::Pong) => break,
                Some(Said::Refused(why)) => {
                    return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
                }
                Some(_) => {}
                None => {
                    link.read()?;
                }
            }
        }
        link.socket.set_nonblocking(true)?;
        Ok(link)
    }

    /// The next thing the server has said in full.
    pub fn said(&mut self) -> io::Result<Option<Said>> {
        self.reader.take().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Takes what has come; whether something has.
    pub fn read(&mut self) -> io::Result<bool> {
        match self.socket.read(&mut self.chunk) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => {
                self.reader.push(&self.chunk[..bytes]);
                Ok(true)
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock && self.is_blocking() => {
                Err(io::ErrorKind::TimedOut.into())
            }
            Err(e)
                if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) =>
            {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn is_blocking(&self) -> bool {
        rustix::fs::fcntl_getfl(&self.socket)
            .is_ok_and(|flags| !flags.contains(rustix::fs::OFlags::NONBLOCK))
    }

    /// Sends what the socket takes.
    pub fn write(&mut self) -> io::Result<()> {
        let mut sent = 0;
        while sent < self.out.len() {
            match self.socket.write(&self.out[sent..]) {
                Ok(bytes) => sent += bytes,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.out.drain(..sent);
        Ok(())
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn check(info: &Info, payload: u64) -> io::Result<()> {
    let mut numbers = info.version.split('.').filter_map(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version < OLDEST {
        return Err(wrong(&format!(
            "nats-server {} is too old: 2.15 or newer is needed",
            info.version
        )));
    }
    if !info.jetstream || !info.headers {
        return Err(wrong("the server has no JetStream: start nats-server with -js"));
    }
    if info.max_payload < payload {
        return Err(wrong(&format!(
            "nats-server takes messages of {} bytes, and {payload} are needed: raise its max_payload (8MB is usual), or \
             lower that of mq9",
            info.max_payload
        )));
    }
    Ok(())
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
