//! The format of mail addresses.

use crate::error::{Error, Result};

/// The longest address, in bytes.
pub const MAX_ADDRESS: usize = 128;

/// Accepts what the store can hold: an address, or `$` and an address, which no client can name.
pub fn check_name(name: &str) -> Result<()> {
    check_address(name.strip_prefix('$').unwrap_or(name))
}

/// Accepts lowercase letters, digits and inner dots, 1 to 128 characters; names the rule broken.
pub fn check_address(address: &str) -> Result<()> {
    let bytes = address.as_bytes();
    let rule = if bytes.is_empty() {
        "it must not be empty"
    } else if bytes.len() > MAX_ADDRESS {
        "it must have at most 128 characters"
    } else if bytes.iter().any(u8::is_ascii_uppercase) {
        "it must be lowercase"
    } else if !bytes.iter().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.')) {
        "it may hold only a-z, 0-9 and dots"
    } else if bytes.starts_with(b".") || bytes.ends_with(b".") {
        "it must not begin or end with a dot"
    } else if bytes.windows(2).any(|pair| pair == b"..") {
        "it must not hold two dots in a row"
    } else {
        return Ok(());
    };
    let shown = address.chars().take(MAX_ADDRESS).collect();
    Err(Error::InvalidAddress { address: shown, rule })
}
