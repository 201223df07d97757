//! The two places where bytes cross the border without a copy.
//!
//! Everything unsafe in this crate is here, each with the reason why it holds.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, RawFd};

use pyo3::prelude::*;
use pyo3::types::PyByteArray;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// Runs `read` on the first `length` bytes of a buffer that a transport has filled.
///
/// `read` must not call Python: that is why it gets no token.
pub fn with_received<T: Send>(
    buffer: &Bound<'_, PyByteArray>,
    length: usize,
    read: impl FnOnce(&[u8]) -> T,
) -> T {
    // SAFETY: the interpreter is held and `read` runs no Python code, so nobody writes to the
    // bytearray or changes its size before `read` has returned and the slice is gone.
    let bytes = unsafe { buffer.as_bytes() };
    read(&bytes[..length.min(bytes.len())])
}

/// A descriptor that somebody else owns and closes, but not before it is forgotten here.
#[derive(Clone, Copy)]
pub struct Socket(RawFd);

/// What reading from a socket has brought.
pub enum Received {
    Bytes(usize),
    Nothing,
    /// The client will send no more.
    End,
    Broken,
}

impl Socket {
    /// The descriptor of this number, if it is one.
    pub fn new(number: RawFd) -> Option<Self> {
        (number >= 0).then_some(Self(number))
    }

    /// Writes without waiting: how many bytes were taken, or nothing if the socket is broken.
    pub fn send(self, bytes: &[u8]) -> Option<usize> {
        match send(self, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(sent) => Some(sent),
            Err(Errno::AGAIN | Errno::INTR) => Some(0),
            Err(_) => None,
        }
    }

    /// Reads once, without waiting.
    pub fn receive(self, buffer: &mut [u8]) -> Received {
        match recv(self, buffer, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => Received::End,
            Ok((_, bytes)) => Received::Bytes(bytes),
            Err(Errno::AGAIN | Errno::INTR) => Received::Nothing,
            Err(_) => Received::Broken,
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: a transport closes its socket only after `connection_lost`, where the connection
        // forgets it. The store's is used once, by the call that has asked the open store for it.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}
