//! Disks on which the mq9 store is tested: one that loses power, one that reports errors.
//!
//! [`SimDisk`] keeps a directory in memory and knows what a power cut may leave of it.
//! [`FaultyDisk`] wraps any disk and fails the calls that a test asks it to fail. Neither knows what
//! the files hold.

mod chance;
mod contents;
mod directory;
mod faults;
mod faulty_disk;
mod inode;
mod sim_disk;

pub use faults::{Cause, Fault, Faults, Operation};
pub use faulty_disk::FaultyDisk;
pub use sim_disk::SimDisk;
