//! Subjects: tokens parted by dots, where `*` stands for one token and a last `>` for one or more.

use memchr::memchr;

/// The tokens of a subject, empty ones included.
pub fn tokens(subject: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    subject.split(|&byte| byte == b'.')
}

/// Whether a client may subscribe to it: no empty token, and `>` only at the end.
pub fn is_valid(subject: &[u8]) -> bool {
    let mut rest = subject;
    loop {
        let (token, more) = match memchr(b'.', rest) {
            Some(dot) => (&rest[..dot], Some(&rest[dot + 1..])),
            None => (rest, None),
        };
        match more {
            _ if token.is_empty() => return false,
            None => return true,
            Some(_) if token == b">" => return false,
            Some(more) => rest = more,
        }
    }
}

/// Whether any token is a wildcard.
pub fn has_wildcard(subject: &[u8]) -> bool {
    // Most subjects have neither byte, so the tokens need not be looked at.
    subject.iter().any(|&byte| byte == b'*' || byte == b'>')
        && tokens(subject).any(|token| token == b"*" || token == b">")
}

/// Whether a message may be published to it by a client that asks for strict checks.
pub fn is_literal(subject: &[u8]) -> bool {
    is_valid(subject) && !has_wildcard(subject)
}

/// Whether a message published to `subject` goes to a subscription to `pattern`.
///
/// As in the router, wildcards in `subject` are ordinary tokens.
pub fn matches(pattern: &[u8], subject: &[u8]) -> bool {
    let mut subject = tokens(subject);
    for part in tokens(pattern) {
        match subject.next() {
            None => return false,
            Some(_) if part == b">" => return true,
            Some(token) if part == b"*" || part == token => {}
            Some(_) => return false,
        }
    }
    subject.next().is_none()
}

/// Whether everything that a subscription to `inner` could receive also matches `outer`.
pub fn covers(outer: &[u8], inner: &[u8]) -> bool {
    let mut inner = tokens(inner);
    for part in tokens(outer) {
        match inner.next() {
            None => return false,
            Some(_) if part == b">" => return true,
            Some(b">") => return false,
            Some(token) if part == b"*" || part == token => {}
            Some(_) => return false,
        }
    }
    inner.next().is_none()
}

/// Whether there is a subject that matches both.
pub fn overlaps(one: &[u8], other: &[u8]) -> bool {
    let (mut one, mut other) = (tokens(one), tokens(other));
    loop {
        match (one.next(), other.next()) {
            (None, None) => return true,
            (None, Some(_)) | (Some(_), None) => return false,
            (Some(b">"), Some(_)) | (Some(_), Some(b">")) => return true,
            (Some(a), Some(b)) if a == b"*" || b == b"*" || a == b => {}
            _ => return false,
        }
    }
}
