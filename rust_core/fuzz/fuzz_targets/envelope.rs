//! The envelope of tasks: no input makes it panic, and what counts of it is within its bounds.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mq9_core::jetstream::Envelope;

fuzz_target!(|data: &[u8]| {
    match Envelope::read(data) {
        Ok(found) => {
            serde_json::from_slice::<serde::de::IgnoredAny>(data).expect("taken, and no JSON");
            assert!(found.ttl_ms.is_none_or(|ttl| ttl % 1000 == 0 && ttl > 0));
        }
        Err(error) => assert_eq!((error.code, error.err_code), (400, 10003)),
    }
});
