//! Priority levels: 1 is the most important, 10 the least.

/// How many priority levels there are.
pub const LEVELS: usize = 10;

/// A priority level, 1 (highest) to 10 (lowest).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(u8);

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

    /// The position of the level in arrays of [`LEVELS`] elements.
    pub fn index(self) -> usize {
        usize::from(self.0 - 1)
    }

    /// All levels, most important first.
    pub fn all() -> impl DoubleEndedIterator<Item = Level> {
        (1..=LEVELS as u8).map(Level)
    }
}
