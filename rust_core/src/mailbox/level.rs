//! Priority levels: 1 is the most important, 10 the least.

/// How many priority levels there are.
pub const LEVELS: usize = 10;

/// A priority level, 1 (highest) to 10 (lowest).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(u8);

impl Default for Level {
    fn default() -> Level {
        Level::NORMAL
    }
}

impl Level {
    /// `critical`
    pub const CRITICAL: Level = Level(1);
    /// `urgent`
    pub const URGENT: Level = Level(3);
    /// `normal`, the default
    pub const NORMAL: Level = Level(5);
    /// `notify`
    pub const NOTIFY: Level = Level(9);

    /// The least important level.
    pub const LOWEST: Level = Level(LEVELS as u8);

    /// The level of that number, if it is one of 1 to 10.
    pub fn new(number: u8) -> Option<Level> {
        (1..=LEVELS as u8).contains(&number).then_some(Level(number))
    }

    /// The number of the level, 1 to 10.
    pub fn number(self) -> u8 {
        self.0
    }

    /// The level of that name, or of a number from 1 to 10 in digits.
    pub fn named(name: &str) -> Option<Level> {
        match name {
            "critical" => Some(Level::CRITICAL),
            "urgent" => Some(Level::URGENT),
            "normal" => Some(Level::NORMAL),
            "notify" => Some(Level::NOTIFY),
            number => number.parse().ok().and_then(Level::new),
        }
    }

    /// The name of the level, or its number where it has none.
    pub fn name(self) -> &'static str {
        match self.0 {
            1 => "critical",
            2 => "2",
            3 => "urgent",
            4 => "4",
            5 => "normal",
            6 => "6",
            7 => "7",
            8 => "8",
            9 => "notify",
            _ => "10",
        }
    }

    /// The position of the level in arrays of [`LEVELS`] elements.
    pub fn index(self) -> usize {
        usize::from(self.0 - 1)
    }

    /// All levels, most important first.
    pub fn all() -> impl DoubleEndedIterator<Item = Level> {
        (1..=LEVELS as u8).map(Level)
    }
}
