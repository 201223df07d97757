//! What a Redis server sends, read from a buffer one token at a time. Knows no socket.

use crate::failure::Failure;

/// A line of the protocol, with the bytes it announces.
#[derive(Debug, PartialEq, Eq)]
pub enum Token<'a> {
    /// So many values follow.
    Array(usize),
    /// A string.
    Bulk(&'a [u8]),
    /// A number.
    Number(i64),
    /// `+OK` and the like.
    Simple(&'a [u8]),
    /// Nothing.
    Nil,
}

/// The first token of `input` and its length, or nothing while it is incomplete.
pub fn first(input: &[u8]) -> Result<Option<(Token<'_>, usize)>, Failure> {
    let Some(end) = memchr::memchr(b'\n', input) else { return Ok(None) };
    let line = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]);
    let wrong = || Failure::Server(format!("sent {:?}", String::from_utf8_lossy(line)));
    let (kind, text) = line.split_first().ok_or_else(wrong)?;
    let number = || std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok());
    let length = end + 1;
    let token = match kind {
        b'+' => Token::Simple(text),
        b':' => Token::Number(number().ok_or_else(wrong)?),
        b'*' | b'$' => match (number().ok_or_else(wrong)?, kind) {
            (-1, _) => Token::Nil,
            (count @ 0.., b'*') => Token::Array(count as usize),
            (size @ 0.., _) => {
                let size = size as usize;
                let Some(body) = input[length..].get(..size + 2) else { return Ok(None) };
                return Ok(Some((Token::Bulk(&body[..size]), length + size + 2)));
            }
            _ => return Err(wrong()),
        },
        _ => return Err(wrong()),
    };
    Ok(Some((token, length)))
}

/// The length of the first whole value of `input`, with all it consists of, or nothing while it is
/// incomplete.
pub fn whole(input: &[u8]) -> Result<Option<usize>, Failure> {
    let (mut used, mut missing) = (0, 1_usize);
    while missing > 0 {
        let Some((token, length)) = first(&input[used..])? else { return Ok(None) };
        used += length;
        missing -= 1;
        if let Token::Array(count) = token {
            missing += count;
        }
    }
    Ok(Some(used))
}

/// A command, as clients send it.
pub fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bulk(&mut out, word);
    }
    out
}

/// Appends a string.
pub fn bulk(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(format!("${}\r\n", text.len()).as_bytes());
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_whole_when_all_of_it_has_arrived() {
        let input = b"*2\r\n$3\r\na\r\n\r\n*1\r\n:7\r\n+OK\r\n";
        let length = input.len() - 5;
        for cut in 0..length {
            assert_eq!(whole(&input[..cut]).unwrap(), None, "{cut} bytes");
        }
        assert_eq!(whole(input).unwrap(), Some(length));
        assert_eq!(first(&input[4..]).unwrap(), Some((Token::Bulk(b"a\r\n"), 9)));
        assert_eq!(first(&input[length..]).unwrap(), Some((Token::Simple(b"OK"), 5)));
        assert_eq!(first(b"*-1\r\n").unwrap(), Some((Token::Nil, 5)));
    }

    #[test]
    fn errors_and_nonsense_end_the_run() {
        for input in [&b"-ERR unknown command\r\n"[..], b"$x\r\n", b"*-2\r\n", b"\r\n", b"MSG\r\n"]
        {
            assert!(first(input).is_err(), "{}", String::from_utf8_lossy(input));
        }
    }

    #[test]
    fn a_command_is_an_array_of_strings() {
        assert_eq!(command(&[b"XLEN", b"a"]), b"*2\r\n$4\r\nXLEN\r\n$1\r\na\r\n");
    }
}
