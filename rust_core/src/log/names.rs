//! Every file name of a data directory, in one place.

/// Suffix of files that are not finished: ignored and removed on open.
pub const UNFINISHED: &str = ".tmp";

/// The name of a segment.
pub fn segment(number: u32) -> String {
    format!("segment-{number:010}.log")
}

/// The number of a segment, if `name` is one.
pub fn segment_number(name: &str) -> Option<u32> {
    number(name, "segment-", ".log")
}

/// The name of a checkpoint.
pub fn checkpoint(number: u32) -> String {
    format!("checkpoint-{number:010}.mq9")
}

/// The number of a checkpoint, if `name` is one.
pub fn checkpoint_number(name: &str) -> Option<u32> {
    number(name, "checkpoint-", ".mq9")
}

/// Where unreadable bytes of a segment are set aside.
pub fn set_aside(file: &str, offset: u64) -> String {
    format!("damaged-{file}-at-{offset}")
}

/// Where it is written down what was lost with a segment of which nothing is left to set aside.
pub fn lost(file: &str) -> String {
    format!("damaged-{file}-lost")
}

/// Whether a file tells of damage.
pub fn is_set_aside(name: &str) -> bool {
    name.starts_with("damaged-")
}

fn number(name: &str, prefix: &str, suffix: &str) -> Option<u32> {
    let digits = name.strip_prefix(prefix)?.strip_suffix(suffix)?;
    (digits.len() == 10 && digits.bytes().all(|b| b.is_ascii_digit()))
        .then(|| digits.parse().ok())?
}
