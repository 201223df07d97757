//! Little-endian numbers and length-prefixed fields. Reading never panics: it ends with `None`.

/// Appends fields to a byte vector.
pub trait Put {
    /// Appends one byte.
    fn put_u8(&mut self, value: u8);
    /// Appends two bytes.
    fn put_u16(&mut self, value: u16);
    /// Appends four bytes.
    fn put_u32(&mut self, value: u32);
    /// Appends eight bytes.
    fn put_u64(&mut self, value: u64);
    /// Appends a number in as few bytes as it needs: seven bits in each, the lowest first, the highest bit set in all
    /// but the last.
    fn put_varint(&mut self, value: u64);
    /// Appends a one-byte length and that many bytes; longer input is cut.
    fn put_short(&mut self, value: &[u8]);
    /// Appends a two-byte length and that many bytes; longer input is cut.
    fn put_medium(&mut self, value: &[u8]);
}

impl Put for Vec<u8> {
    fn put_u8(&mut self, value: u8) {
        self.push(value);
    }

    fn put_u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.push(value as u8);
    }

    fn put_short(&mut self, value: &[u8]) {
        let len = value.len().min(usize::from(u8::MAX));
        self.push(len as u8);
        self.extend_from_slice(&value[..len]);
    }

    fn put_medium(&mut self, value: &[u8]) {
        let len = value.len().min(usize::from(u16::MAX));
        self.put_u16(len as u16);
        self.extend_from_slice(&value[..len]);
    }
}

/// Takes fields off the front of a byte slice.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// What has not been read yet.
    pub fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// True at the end.
    pub fn is_empty(self) -> bool {
        self.rest.is_empty()
    }

    /// The next `len` bytes.
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*taken)
    }

    /// The next byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// The next two bytes.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// The next four bytes.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// The next eight bytes.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A number of as many bytes as it needs, and no more.
    #[inline]
    pub fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                // The last byte holds some of the number, and no bit of it was lost.
                let needed = shift == 0 || byte > 0;
                return (needed && value >> shift == u64::from(byte)).then_some(value);
            }
        }
        None
    }

    /// Bytes behind a one-byte length.
    pub fn short(&mut self) -> Option<&'a [u8]> {
        let len = self.u8()?;
        self.take(usize::from(len))
    }

    /// Bytes behind a two-byte length.
    pub fn medium(&mut self) -> Option<&'a [u8]> {
        let len = self.u16()?;
        self.take(usize::from(len))
    }

    /// Text behind a one-byte length.
    pub fn short_str(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.short()?).ok()
    }

    /// Text behind a two-byte length.
    pub fn medium_str(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.medium()?).ok()
    }
}
