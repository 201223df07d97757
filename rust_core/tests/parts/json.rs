//! The scanner of JSON objects against a parser of values, which knows no depth and no field twice.

use mq9_core::json::{Field, Flaw, Rules, fields, select};
use proptest::prelude::*;
use serde_json::Value;

const RULES: Rules = Rules { max_depth: 64, unique: true };
const ANY: Rules = Rules { max_depth: 64, unique: false };

fn names(text: &str) -> Vec<String> {
    let found = fields(text.as_bytes(), RULES).expect("an object");
    found.into_iter().map(|Field { name, .. }| name.into_owned()).collect()
}

fn flaw(text: &[u8]) -> String {
    fields(text, RULES).expect_err("no object").to_string()
}

#[test]
fn fields_are_told_apart_and_stay_as_written() {
    assert_eq!(names(r#"{"a":1,"b":{"a":[1,{"a":2}]},"":"}"}"#), ["a", "b", ""]);
    assert!(names(" {\n} ").is_empty());
    let text = br#"{ "a" : 1.10 , "b":{"x":[1 , 2]},
"c":"\u00e9}", "mailbox":"m"}"#;
    let picked = select(text, &["a", "c", "x"], RULES).expect("an object");
    assert_eq!(picked, br#"{"a" : 1.10,"c":"\u00e9}"}"#);
    assert_eq!(
        select(br#"{"\u0061":-0.5e+9}"#, &["a"], RULES).expect("a"),
        br#"{"\u0061":-0.5e+9}"#
    );
}

#[test]
fn a_field_given_twice_is_named_however_it_is_written() {
    let twice = r#"the field "a" is given more than once"#;
    assert_eq!(flaw(br#"{"a":1,"b":2,"a":3}"#), twice);
    assert_eq!(flaw(br#"{"a":1,"\u0061":3}"#), twice);
    assert_eq!(flaw(br#"{"x":[{"a":1,"b":{"a":1},"a":2}]}"#), twice);
    assert_eq!(names(r#"{"a":{"a":{"a":1}},"b":[{"a":1},{"a":1}]}"#), ["a", "b"]);
    // The same beginning is not the same name.
    assert_eq!(names(r#"{"abcdefgh":1,"abcdefgh1":1,"abcdefg":1,"abcdefgh\u0000":1}"#).len(), 4);
    assert_eq!(fields(br#"{"a":1,"a":2}"#, ANY).map(|found| found.len()), Ok(2));
}

#[test]
fn what_is_refused_is_said_in_words() {
    assert_eq!(flaw(b"[1]"), "the request must be a JSON object");
    assert_eq!(flaw(b"{\"a\": "), "invalid request: EOF while parsing a value at line 1 column 6");
    assert_eq!(flaw(b""), "invalid request: EOF while parsing a value at line 1 column 0");
    assert_eq!(flaw(b"{\"a\":\"\xff\"}"), "invalid request: no UTF-8 at line 1 column 7");
    assert!(flaw(br#"{"a":"\ud800"}"#).starts_with("invalid request: no Unicode text"));
    for broken in
        ["{,}", "{\"a\"}", "{\"a\":1,}", "{\"a\":01}", "{\"a\":.5}", "{\"a\":1.}", "{\"a\":NaN}"]
    {
        assert!(flaw(broken.as_bytes()).starts_with("invalid request: "), "{broken}");
    }
    for broken in ["{\"a\":[1}", "{\"a\":{]", "{} x", "{\"a\":\"\t\"}", "{\"a\":\"\\x\"}", "{a:1}"]
    {
        assert!(flaw(broken.as_bytes()).starts_with("invalid request: "), "{broken}");
    }
}

#[test]
fn depth_counts_objects_and_lists_outside_of_strings() {
    let nested = |depth: usize| {
        let inner = "[".repeat(depth - 1) + &"]".repeat(depth - 1);
        format!(r#"{{"x":{}}}"#, if depth > 1 { inner } else { "\"[[[[\"".into() })
    };
    assert_eq!(names(&nested(64)), ["x"]);
    assert_eq!(names(&nested(1)), ["x"]);
    let deep = fields(nested(65).as_bytes(), RULES).map(|found| found.len());
    assert_eq!(deep, Err(Flaw::Deep(64)));
    assert_eq!(fields("{\"a\":".repeat(1 << 20).as_bytes(), RULES).err(), Some(Flaw::Deep(64)));
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_filter_map("finite", |number| number.is_finite().then(|| number.into())),
        ".{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((".{0,3}", inner), 0..5)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn every_object_is_taken_and_its_fields_are_those_of_the_parser(value in values()) {
        let text = serde_json::to_string(&serde_json::json!({ "x": value, "y": 1 })).expect("text");
        let picked = select(text.as_bytes(), &["x"], RULES).expect("an object");
        let read: Value = serde_json::from_slice(&picked).expect("what was picked is JSON");
        let whole: Value = serde_json::from_str(&text).expect("JSON");
        prop_assert_eq!(&read["x"], &whole["x"]);
        prop_assert_eq!(read.as_object().map(|object| object.len()), Some(1));
    }

    #[test]
    fn what_is_taken_is_what_the_parser_takes(text in r#"\{[ ,:"\\{}\[\]a0-9.eE+\-u/tfn\x01]{0,24}\}?"#) {
        let taken = fields(text.as_bytes(), ANY).is_ok();
        let parsed = serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
        prop_assert!(!taken || parsed, "{}", text);
        // Beyond the parser, only what is no Unicode is refused.
        prop_assert!(taken || !parsed || text.contains("\\u"), "{}", text);
    }
}
