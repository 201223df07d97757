//! The two clocks of a caller. The core never reads a clock itself.

/// One instant, read by the caller from both clocks at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds since the Unix epoch: may jump. Used for TTLs and delays.
    pub wall_ms: u64,
    /// Milliseconds of a clock that never goes back. Used for leases and waits.
    pub mono_ms: u64,
}
