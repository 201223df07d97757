//! The table at the end.

use std::fmt;

/// A measurement's row.
#[derive(Debug)]
struct Row {
    what: String,
    measured: String,
    limit: String,
    verdict: &'static str,
}

/// All rows so far.
#[derive(Debug, Default)]
pub struct Table(Vec<Row>);

impl Table {
    /// A measurement with a limit.
    pub fn check(&mut self, what: &str, measured: String, limit: &str, holds: bool) {
        self.row(what, measured, limit, if holds { "pass" } else { "FAIL" });
    }

    /// A measurement without one.
    pub fn note(&mut self, what: &str, measured: String) {
        self.row(what, measured, "", "");
    }

    fn row(&mut self, what: &str, measured: String, limit: &str, verdict: &'static str) {
        println!("{what}: {measured} {limit} {verdict}");
        let (what, limit) = (what.to_owned(), limit.to_owned());
        self.0.push(Row { what, measured, limit, verdict });
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = ["what", "measured", "limit", ""];
        let rows: Vec<[&str; 4]> = self
            .0
            .iter()
            .map(|row| [&row.what[..], &row.measured, &row.limit, row.verdict])
            .collect();
        let width = |at: usize| rows.iter().chain([&header]).map(|row| row[at].len()).max();
        let [a, b, c, d] = [0, 1, 2, 3].map(|at| width(at).unwrap_or(0));
        let line = |row: &[&str; 4]| {
            format!("| {:a$} | {:b$} | {:c$} | {:d$} |", row[0], row[1], row[2], row[3])
        };
        writeln!(f, "{}", line(&header))?;
        let dashes = [a, b, c, d].map(|width| "-".repeat(width));
        writeln!(f, "{}", line(&[&dashes[0], &dashes[1], &dashes[2], &dashes[3]]))?;
        rows.iter().try_for_each(|row| writeln!(f, "{}", line(row)))
    }
}

/// The middle value.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Millions per second as text.
pub fn millions(per_second: f64) -> String {
    format!("{:.2} M/s", per_second / 1e6)
}
