//! Processor time of the load generator and of the server, over one measurement; and the core the
//! generator stays on.

use std::time::{Duration, Instant};

use rustix::thread::CpuSet;
use rustix::time::{ClockId, clock_gettime};

use crate::failure::{Doing as _, Failure};

/// Keeps the generator on one core.
pub fn pin(core: usize) -> Result<(), Failure> {
    if core >= CpuSet::MAX_CPU {
        return Err(Failure::Usage(format!(
            "--cpu {core}: the largest is {}",
            CpuSet::MAX_CPU - 1
        )));
    }
    let mut set = CpuSet::new();
    set.set(core);
    rustix::thread::sched_setaffinity(None, &set).doing(&format!("pin to core {core}"))
}

/// What a measurement took.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// From the first message to the last answer.
    pub elapsed: Duration,
    /// Processor time of the generator.
    pub generator: Duration,
    /// Processor time of the server, all threads; unknown without its process id.
    pub server: Option<Duration>,
}

/// A measurement that runs.
#[derive(Debug)]
pub struct Meter {
    server_pid: Option<u32>,
    started: Instant,
    generator: Duration,
    server: Option<Duration>,
}

impl Meter {
    /// Starts now.
    pub fn start(server_pid: Option<u32>) -> Result<Self, Failure> {
        let server = server_pid.map(processor_time).transpose()?;
        Ok(Self { server_pid, started: Instant::now(), generator: own_processor_time(), server })
    }

    /// Ends now.
    pub fn stop(self) -> Result<Usage, Failure> {
        let elapsed = self.started.elapsed();
        let generator = own_processor_time().saturating_sub(self.generator);
        let server = match (self.server_pid, self.server) {
            (Some(pid), Some(before)) => Some(processor_time(pid)?.saturating_sub(before)),
            _ => None,
        };
        Ok(Usage { elapsed, generator, server })
    }
}

fn own_processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// User and system time of a process, in steps of the kernel's clock tick (10 ms as a rule).
fn processor_time(pid: u32) -> Result<Duration, Failure> {
    let path = format!("/proc/{pid}/stat");
    let stat = std::fs::read_to_string(&path).doing(&format!("read {path}"))?;
    let ticks = ticks(&stat).ok_or_else(|| Failure::Usage(format!("{path}: not understood")))?;
    Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

fn ticks(stat: &str) -> Option<u64> {
    // The second field is the name in parentheses and may itself hold spaces and parentheses.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_system_time_are_found_behind_any_name() {
        let stat = "42 (a (b) c) S 1 42 42 0 -1 4194304 100 0 0 0 250 50 7 8 20 0 1 0 5";
        assert_eq!(ticks(stat), Some(300));
        assert_eq!(ticks("42 (a"), None);
    }

    #[test]
    fn a_busy_process_uses_time() {
        let busy = Duration::from_millis(60);
        let meter = Meter::start(Some(std::process::id())).unwrap();
        // By the processor's clock: on a busy machine the other goes on without us.
        while own_processor_time() < meter.generator + busy {
            std::hint::spin_loop();
        }
        let usage = meter.stop().unwrap();
        assert!(usage.generator >= busy && usage.server > Some(Duration::ZERO));
    }
}
