//! The two places where bytes cross the border without a copy.
//!
//! Everything unsafe in this crate is here, each with the reason why it holds.
#![allow(unsafe_code)]

use std::os::fd::{BorrowedFd, RawFd};

use pyo3::prelude::*;
use pyo3::types::PyByteArray;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

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

/// Writes to a socket that does not block: how many bytes it took, or nothing if it is broken.
pub fn send_now(socket: RawFd, bytes: &[u8]) -> Option<usize> {
    // SAFETY: the transport owns the descriptor and closes it only after `connection_lost`, where
    // the connection forgets the number.
    let socket = unsafe { BorrowedFd::borrow_raw(socket) };
    match send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        Ok(sent) => Some(sent),
        Err(Errno::AGAIN | Errno::INTR) => Some(0),
        Err(_) => None,
    }
}
