//! The scanner of JSON objects: no input makes it panic, and it takes what the parser takes, no more.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mq9_core::json::{Flaw, Rules, fields, select};
use serde_json::Value;

fuzz_target!(|data: &[u8]| {
    let unique = Rules { max_depth: 64, unique: true };
    let any = Rules { unique: false, ..unique };
    let parsed = serde_json::from_slice::<serde::de::IgnoredAny>(data).is_ok();
    match fields(data, any) {
        Ok(found) => {
            assert!(parsed, "taken, and no JSON");
            let names: Vec<_> = found.iter().map(|field| field.name.clone()).collect();
            let mut sorted = names.clone();
            sorted.sort();
            let picked = select(data, &sorted, any).expect("taken again");
            assert_eq!(fields(&picked, any).expect("taken again").len(), names.len());
            sorted.dedup();
            if sorted.len() < names.len() {
                assert!(matches!(fields(data, unique), Err(Flaw::Twice(_))));
            }
        }
        Err(Flaw::NotAnObject) => assert!(parsed, "JSON of another kind"),
        // A whole value of the parser's holds strings of Unicode only, and numbers that fit.
        Err(Flaw::Syntax(_)) => assert!(serde_json::from_slice::<Value>(data).is_err()),
        Err(Flaw::Deep(_)) => {}
        Err(Flaw::Twice(_)) => unreachable!("was not asked for"),
    }
});
