//! The place where a descriptor crosses the border.
//!
//! Everything unsafe in this crate is here, with the reason why it holds.
#![allow(unsafe_code)]

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use pyo3::PyResult;
use pyo3::exceptions::PyValueError;

/// The descriptor of this number, which whoever gives it does not own any more.
pub fn owned(number: RawFd) -> PyResult<OwnedFd> {
    if number < 0 {
        return Err(PyValueError::new_err(format!("{number} is no descriptor")));
    }
    // SAFETY: the caller has detached the socket it was accepted as, so that nobody else uses or closes the number.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
