//! The simulated disk: what it does as long as the power stays on, and when it is cut; errors on demand.

mod faulty_disk;
mod names;
mod power_cut;
mod same_as_os_disk;
