//! The envelope of tasks: what is read of it, and what is said of one that is wrong.

#![allow(clippy::unwrap_used)]

use mq9_core::jetstream::{ApiError, Envelope};
use mq9_core::mailbox::Level;

const WHOLE: &str = r#"{"schema":"hanzo.mq.v1","id":"task_01HQ3X7K8M2N4P5R6S7T8U9V0W",
    "type":"inference.chat.request","source":"cloud-api","timestamp":"2026-02-23T10:30:00.000Z",
    "priority":5,"org_id":"org_hanzo","team_id":"team_abc123","delay_until":null,
    "ttl_seconds":300,"data":{"deep":[[{"a":[]}]]},"more":1}"#;

fn read(payload: &[u8]) -> Result<Envelope, ApiError> {
    Envelope::read(payload)
}

fn refusal(from: &str, to: &str) -> String {
    assert!(WHOLE.contains(from), "{from}");
    read(WHOLE.replace(from, to).as_bytes()).unwrap_err().description.into_owned()
}

#[test]
fn the_envelope_of_the_document_is_read() {
    let found = read(WHOLE.as_bytes()).unwrap();
    assert_eq!(found, Envelope { due_ms: None, ttl_ms: Some(300_000), level: Level::new(5) });
    let delayed = WHOLE.replace(":null", r#":"1970-01-01T00:00:01.5Z""#);
    assert_eq!(read(delayed.as_bytes()).unwrap().due_ms, Some(1500));
    let least = r#"{"schema":"hanzo.mq.v1","id":"1","type":"a","source":"b",
        "timestamp":"2026-02-23T10:30:00Z","data":{}}"#;
    assert_eq!(read(least.as_bytes()).unwrap(), Envelope::default());
}

#[test]
fn what_is_wrong_is_said() {
    for (from, to, said) in [
        (r#""schema":"hanzo.mq.v1","#, "", "missing field `schema`"),
        ("hanzo.mq.v1", "hanzo.mq.v2", "schema: it must be hanzo.mq.v1"),
        (r#""task_01HQ3X7K8M2N4P5R6S7T8U9V0W""#, "7", "id: invalid type: integer `7`"),
        ("task_01HQ3X7K8M2N4P5R6S7T8U9V0W", "", "id: it is empty"),
        ("inference.chat.request", "inference..x", "type: expected words"),
        ("cloud-api", &"x".repeat(256), "source: it is longer than 255"),
        ("2026-02-23T10", "2026-13-23T10", "timestamp: expected a time"),
        ("30:00.000Z", "30:00.000+01:00", "timestamp: expected a time in UTC"),
        (r#""priority":5"#, r#""priority":11"#, "priority: 11 is not between"),
        (r#""priority":5"#, r#""priority":0"#, "priority: 0 is not between"),
        (r#""priority":5"#, r#""priority":"5""#, "priority: invalid type: string"),
        (r#""priority":5"#, r#""priority":5.5"#, "priority: invalid type: floating"),
        (":null", ":\"tomorrow\"", "delay_until: expected a time"),
        (":300", ":0", "ttl_seconds: 0 is not between"),
        (":300", ":99999999999", "ttl_seconds: 99999999999 is not"),
        (r#"{"deep":[[{"a":[]}]]}"#, "[]", "data: invalid type: sequence, expected an object"),
        (r#""more":1"#, r#""id":"x""#, "duplicate field `id`"),
        (r#""more":1}"#, r#""more":1} x"#, "trailing characters"),
    ] {
        let found = refusal(from, to);
        assert!(found.starts_with("this is no envelope hanzo.mq.v1: "), "{found}");
        assert!(found.contains(said), "{found:?} does not say {said:?}");
    }
    assert!(read(b"").is_err());
    assert!(read(b"\xff").is_err());
}

#[test]
fn depth_costs_nothing() {
    let deep = format!("{}{}", "[".repeat(300_000), "]".repeat(300_000));
    assert!(read(WHOLE.replace("[[{\"a\":[]}]]", &deep).as_bytes()).is_ok());
}
