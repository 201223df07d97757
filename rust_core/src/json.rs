//! A JSON object, checked in one pass: strict, of bounded depth, and where asked for without a field
//! that is given twice. What is picked out of it stays as it was written.
//!
//! Owns what counts as JSON where somebody else's text is read. Must not know what fields mean. Keeps
//! its own stack: no input makes it recurse. Cost is linear in the text, names are sorted.

use std::borrow::Cow;
use std::fmt;

use serde::de::IgnoredAny;

/// Longest part of a name that an error quotes.
const SHOWN_CHARS: usize = 80;

/// What is asked of a text besides being a JSON object.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Most levels of objects and lists, the outermost included.
    pub max_depth: usize,
    /// No object may give a field twice.
    pub unique: bool,
}

/// Why a text is refused; says so in words for its sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flaw {
    /// It is no JSON.
    Syntax(String),
    /// It is JSON, and no object.
    NotAnObject,
    /// It has more levels than this.
    Deep(usize),
    /// It gives this field more than once.
    Twice(String),
}

impl fmt::Display for Flaw {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Flaw::Syntax(problem) => write!(out, "invalid request: {problem}"),
            Flaw::NotAnObject => out.write_str("the request must be a JSON object"),
            Flaw::Deep(most) => {
                write!(out, "invalid request: nested too deeply: at most {most} levels are allowed")
            }
            Flaw::Twice(name) => {
                let mut cut: String = name.chars().take(SHOWN_CHARS).collect();
                if cut.len() < name.len() {
                    cut.push_str("...");
                }
                write!(out, "the field {cut:?} is given more than once")
            }
        }
    }
}

impl std::error::Error for Flaw {}

/// A field of the outermost object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field<'a> {
    /// Its name, without escapes.
    pub name: Cow<'a, str>,
    /// Name and value as they were written.
    pub written: &'a str,
}

/// The fields of an object, in order.
pub fn fields(text: &[u8], rules: Rules) -> Result<Vec<Field<'_>>, Flaw> {
    let checked = std::str::from_utf8(text)
        .map_err(|error| Flaw::Syntax(format!("no UTF-8 {}", place(text, error.valid_up_to()))))?;
    let mut scan = Scan { text: checked, at: 0, rules, open: Vec::new(), names: Vec::new() };
    match scan.object() {
        Ok(found) => Ok(found),
        Err(Stop::Flaw(flaw)) => Err(flaw),
        // Words and place come from the parser that every other request is read with.
        Err(Stop::Syntax) => Err(match serde_json::from_slice::<IgnoredAny>(text) {
            Err(error) => Flaw::Syntax(error.to_string()),
            Ok(_) => Flaw::Syntax(format!("no Unicode text {}", place(text, scan.at))),
        }),
    }
}

/// The object with no other fields than these, each as it was written. `wanted` must be sorted.
pub fn select<T: AsRef<str>>(text: &[u8], wanted: &[T], rules: Rules) -> Result<Vec<u8>, Flaw> {
    debug_assert!(wanted.is_sorted_by(|one, next| one.as_ref() <= next.as_ref()));
    let mut picked = vec![b'{'];
    for field in fields(text, rules)? {
        if wanted.binary_search_by(|name| name.as_ref().cmp(&field.name)).is_ok() {
            if picked.len() > 1 {
                picked.push(b',');
            }
            picked.extend_from_slice(field.written.as_bytes());
        }
    }
    picked.push(b'}');
    Ok(picked)
}

enum Stop {
    Syntax,
    Flaw(Flaw),
}

/// An object or list that has no end yet.
struct Open {
    is_object: bool,
    /// Where its names begin among those of all that are open.
    names: usize,
}

/// The beginning of a name, to be compared quickly, and the name.
type Name<'a> = (u64, Cow<'a, str>);

#[derive(Clone, Copy)]
enum Next {
    Name,
    NameOrEnd,
    Value,
    ValueOrEnd,
    CommaOrEnd,
}

struct Scan<'a> {
    text: &'a str,
    at: usize,
    rules: Rules,
    open: Vec<Open>,
    names: Vec<Name<'a>>,
}

impl<'a> Scan<'a> {
    fn object(&mut self) -> Result<Vec<Field<'a>>, Stop> {
        self.skip_space();
        if self.peek() != Some(b'{') {
            let is_json = serde_json::from_str::<IgnoredAny>(self.text).is_ok();
            return Err(if is_json { Stop::Flaw(Flaw::NotAnObject) } else { Stop::Syntax });
        }
        let mut found: Vec<Field<'a>> = Vec::new();
        // The field of the outermost object that is being read.
        let mut field: (usize, Cow<'a, str>) = (0, Cow::Borrowed(""));
        let mut next = self.begin(true)?;
        while let Some(open) = self.open.last() {
            let (is_object, is_outermost) = (open.is_object, self.open.len() == 1);
            self.skip_space();
            let byte = self.peek().ok_or(Stop::Syntax)?;
            next = match (next, byte) {
                (Next::NameOrEnd | Next::CommaOrEnd, b'}') if is_object => self.end()?,
                (Next::ValueOrEnd | Next::CommaOrEnd, b']') if !is_object => self.end()?,
                (Next::CommaOrEnd, b',') => {
                    self.at += 1;
                    if is_object { Next::Name } else { Next::Value }
                }
                (Next::Name | Next::NameOrEnd, b'"') => {
                    let start = self.at;
                    let name = self.string()?;
                    self.skip_space();
                    self.take(b':')?;
                    if self.rules.unique {
                        self.names.push((beginning(&name), name.clone()));
                    }
                    if is_outermost {
                        field = (start, name);
                    }
                    Next::Value
                }
                (Next::Value | Next::ValueOrEnd, b'{') => self.begin(true)?,
                (Next::Value | Next::ValueOrEnd, b'[') => self.begin(false)?,
                (Next::Value | Next::ValueOrEnd, _) => {
                    self.scalar(byte)?;
                    Next::CommaOrEnd
                }
                _ => return Err(Stop::Syntax),
            };
            if matches!(next, Next::CommaOrEnd) && self.open.len() == 1 {
                let (start, name) = std::mem::take(&mut field);
                found.push(Field { name, written: &self.text[start..self.at] });
            }
        }
        self.skip_space();
        if self.at < self.text.len() { Err(Stop::Syntax) } else { Ok(found) }
    }

    fn begin(&mut self, is_object: bool) -> Result<Next, Stop> {
        if self.open.len() >= self.rules.max_depth {
            return Err(Stop::Flaw(Flaw::Deep(self.rules.max_depth)));
        }
        self.at += 1;
        self.open.push(Open { is_object, names: self.names.len() });
        Ok(if is_object { Next::NameOrEnd } else { Next::ValueOrEnd })
    }

    fn end(&mut self) -> Result<Next, Stop> {
        self.at += 1;
        if let Some(open) = self.open.pop() {
            let names = &mut self.names[open.names..];
            names.sort_unstable();
            if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(Stop::Flaw(Flaw::Twice(pair[0].1.clone().into_owned())));
            }
            self.names.truncate(open.names);
        }
        Ok(Next::CommaOrEnd)
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> Result<(), Stop> {
        if self.peek() != Some(byte) {
            return Err(Stop::Syntax);
        }
        self.at += 1;
        Ok(())
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek() {
            self.at += 1;
        }
    }

    fn scalar(&mut self, first: u8) -> Result<(), Stop> {
        match first {
            b'"' => self.string().map(|_| ()),
            b'-' | b'0'..=b'9' => self.number(),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            _ => Err(Stop::Syntax),
        }
    }

    fn word(&mut self, word: &[u8]) -> Result<(), Stop> {
        if !self.text.as_bytes()[self.at..].starts_with(word) {
            return Err(Stop::Syntax);
        }
        self.at += word.len();
        Ok(())
    }

    /// A number of any length: its digits are not looked at.
    fn number(&mut self) -> Result<(), Stop> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), Stop> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == start { Err(Stop::Syntax) } else { Ok(()) }
    }

    /// A string, without its escapes.
    fn string(&mut self) -> Result<Cow<'a, str>, Stop> {
        let start = self.at;
        self.take(b'"')?;
        let mut is_plain = true;
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    is_plain = false;
                    self.at += 1;
                    self.escape()?;
                }
                None | Some(0..=0x1f) => return Err(Stop::Syntax),
                Some(_) => self.at += 1,
            }
        }
        self.at += 1;
        let written = &self.text[start..self.at];
        if is_plain {
            return Ok(Cow::Borrowed(&written[1..written.len() - 1]));
        }
        serde_json::from_str(written).map(Cow::Owned).map_err(|_| Stop::Syntax)
    }

    fn escape(&mut self) -> Result<(), Stop> {
        let byte = self.peek().ok_or(Stop::Syntax)?;
        self.at += 1;
        match byte {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Ok(()),
            b'u' => {
                for _ in 0..4 {
                    if !self.peek().is_some_and(|digit| digit.is_ascii_hexdigit()) {
                        return Err(Stop::Syntax);
                    }
                    self.at += 1;
                }
                Ok(())
            }
            _ => Err(Stop::Syntax),
        }
    }
}

/// A place as people look for it, both counted from 1.
fn place(text: &[u8], at: usize) -> String {
    let before = &text[..at];
    let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
    let column = before.iter().rev().take_while(|&&byte| byte != b'\n').count() + 1;
    format!("at line {line} column {column}")
}

fn beginning(name: &str) -> u64 {
    let mut bytes = [0; 8];
    let shown = name.len().min(bytes.len());
    bytes[..shown].copy_from_slice(&name.as_bytes()[..shown]);
    u64::from_be_bytes(bytes)
}
