//! Output buffers between two uses, so that a busy fan-out does not give memory back only to ask for
//! it again.

/// All spare buffers together have at most this many bytes.
const MAX_BYTES: usize = 16 << 20;

/// Buffers smaller than this stay where they are.
pub(super) const MIN_BYTES: usize = 16 << 10;

/// Empty buffers with room in them.
#[derive(Debug, Default)]
pub(super) struct BufferPool {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl BufferPool {
    /// A buffer, with room if there is a spare one.
    pub fn take(&mut self) -> Vec<u8> {
        let buffer = self.buffers.pop().unwrap_or_default();
        self.bytes -= buffer.capacity();
        buffer
    }

    /// A buffer that is not needed for now.
    pub fn give(&mut self, mut buffer: Vec<u8>) {
        if self.bytes + buffer.capacity() <= MAX_BYTES {
            buffer.clear();
            self.bytes += buffer.capacity();
            self.buffers.push(buffer);
        }
    }
}
