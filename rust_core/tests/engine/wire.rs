//! Input and output of clients, as NATS text.

use mq9_core::store::{AckKind, Fetch, MemberId, Start};
use serde_json::{Value, json};

use crate::script::{Ask, NewMessage};

/// A message as a client sees it: id, payload, priority, time, key, expiry, deliveries.
pub type Shown = (u64, String, String, u64, String, u64, u64);

/// What a reply says, whatever its form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    Sent { msg_id: i64, duplicate: bool },
    Batch { messages: Vec<Shown>, waited: bool },
    Done,
    Refused,
}

/// One protocol message.
#[derive(Debug)]
pub enum Frame {
    Message {
        subject: String,
        reply: String,
        headers: String,
        payload: String,
    },
    /// `-ERR`
    Violation,
}

/// The frames of what came over a connection.
pub fn frames(text: &str) -> Vec<Frame> {
    let mut frames = Vec::new();
    let mut rest = text;
    while let Some((line, more)) = rest.split_once("\r\n") {
        let words: Vec<&str> = line.split(' ').collect();
        let sizes: Vec<usize> = words.iter().rev().map_while(|word| word.parse().ok()).collect();
        rest = match words[0] {
            "-ERR" => {
                assert!(line.contains("Permissions Violation for Publish to"), "{line}");
                frames.push(Frame::Violation);
                more
            }
            "MSG" | "HMSG" => {
                let (total, head) = match words[0] {
                    "MSG" => (sizes[0], 0),
                    _ => (sizes[0], sizes[1]),
                };
                // Subject, sid, and a reply subject if there is one.
                let reply = if words[3].starts_with('$') { words[3] } else { "" };
                frames.push(Frame::Message {
                    subject: words[1].to_owned(),
                    reply: reply.to_owned(),
                    headers: more[..head].to_owned(),
                    payload: more[head..total].to_owned(),
                });
                assert!(more[total..].starts_with("\r\n"), "{text}");
                &more[total + 2..]
            }
            _ => panic!("unexpected line {line:?}"),
        };
    }
    assert_eq!(rest, "");
    frames
}

/// A JSON reply.
pub fn json_reply(payload: &str) -> Said {
    let reply: Value = serde_json::from_str(payload).unwrap();
    if reply["error"] != "" {
        return Said::Refused;
    }
    if let Some(messages) = reply["messages"].as_array() {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let number = |value: &Value| value.as_u64().unwrap_or_default();
        let messages = messages.iter().map(|message| {
            let id = message["msg_id"].as_u64().unwrap();
            let (payload, priority) = (text(&message["payload"]), text(&message["priority"]));
            let (create, expires) = (&message["create_time"], &message["expires_at"]);
            let key = text(&message["key"]);
            let deliveries = number(&message["deliveries"]);
            (id, payload, priority, number(create), key, number(expires), deliveries)
        });
        return Said::Batch { messages: messages.collect(), waited: false };
    }
    match reply["msg_id"].as_i64() {
        Some(msg_id) => Said::Sent { msg_id, duplicate: reply["duplicate"] == true },
        None => Said::Done,
    }
}

/// A message of a raw FETCH, or the status that ends one.
pub fn raw_message(headers: &str, payload: &str) -> Result<Shown, String> {
    let (first, lines) = headers.split_once("\r\n").unwrap();
    if let Some(status) = first.strip_prefix("NATS/1.0 ") {
        return Err(status.to_owned());
    }
    let value = |name: &str| {
        let of = |line: &str| Some(line.strip_prefix(name)?.strip_prefix(": ")?.to_owned());
        lines.split("\r\n").find_map(of).unwrap_or_default()
    };
    let number = |name: &str| value(name).parse().unwrap_or(0);
    let (create, expires) = (number("mq9-create-time"), number("mq9-expires-at"));
    let (priority, key) = (value("mq9-priority"), value("mq9-key"));
    let deliveries = number("mq9-deliveries");
    Ok((number("mq9-msg-id"), payload.to_owned(), priority, create, key, expires, deliveries))
}

/// The bytes of a request; `msg_ids` are those that an ACK means.
pub fn request(ask: &Ask, payload: &str, reply: &str, msg_ids: &[u64]) -> Vec<u8> {
    match ask {
        Ask::Send { address, message } => {
            publish(&format!("SEND.{address}"), reply, &send_headers(message), payload)
        }
        Ask::Fetch { fetch, raw } => {
            publish(&format!("FETCH.{}", fetch.address), reply, "", &fetch_body(fetch, *raw))
        }
        Ask::Ack { address, group, kind, raw: true, .. } => {
            let (group, msg_id) = (if *group == "g" { "Zw" } else { "aA" }, msg_ids[0]);
            let payload = match kind {
                AckKind::Done { .. } => "+ACK".to_owned(),
                AckKind::Return { delay_ms: 0 } => "-NAK".to_owned(),
                AckKind::Return { delay_ms } => {
                    format!(r#"-NAK {{"delay": {}}}"#, delay_ms * 1_000_000)
                }
                AckKind::Progress => "+WPI".to_owned(),
                AckKind::Terminate => "+TERM".to_owned(),
            };
            publish(&format!("RACK.{group}.{msg_id}.{address}"), reply, "", &payload)
        }
        Ask::Ack { address, group, kind, .. } => {
            let mut body = json!({ "group_name": group, "msg_ids": msg_ids });
            match kind {
                AckKind::Done { only } => body["only"] = json!(only),
                AckKind::Return { delay_ms } => {
                    (body["kind"], body["delay_ms"]) = (json!("nak"), json!(delay_ms));
                }
                AckKind::Progress => body["kind"] = json!("progress"),
                AckKind::Terminate => body["kind"] = json!("term"),
            }
            publish(&format!("ACK.{address}"), reply, "", &body.to_string())
        }
    }
}

/// The header line that travels with a message, for the model.
pub fn kept_headers(message: &NewMessage) -> String {
    if message.id.is_empty() { String::new() } else { format!("mq9-id: {}\r\n", message.id) }
}

fn send_headers(message: &NewMessage) -> String {
    let mut headers = kept_headers(message);
    headers += &format!("mq9-priority: {}\r\n", message.level.number());
    if !message.key.is_empty() {
        headers += &format!("mq9-key: {}\r\n", message.key);
    }
    for (name, ms) in [("mq9-ttl-ms", message.ttl_ms), ("mq9-delay-ms", message.delay_ms)] {
        if ms > 0 {
            headers += &format!("{name}: {ms}\r\n");
        }
    }
    headers
}

fn fetch_body(fetch: &Fetch, raw: bool) -> String {
    let mut body = json!({ "config": {
        "num_msgs": fetch.max_msgs,
        "max_wait_ms": fetch.wait_ms,
        "min_priority": fetch.max_level.number(),
    }});
    match fetch.start {
        Start::Earliest => body["deliver"] = json!("earliest"),
        Start::Id(id) => (body["deliver"], body["from_id"]) = (json!("from_id"), json!(id)),
        _ => {}
    }
    if fetch.ack_wait_ms > 0 {
        body["config"]["ack_wait_ms"] = json!(fetch.ack_wait_ms);
    }
    if raw {
        body["config"]["format"] = json!("raw");
    }
    if let Some(group) = &fetch.group {
        body["group_name"] = json!(group.name);
        body["force_deliver"] = json!(group.force);
        body["config"]["held"] = json!(fetch.held);
        if let MemberId::Named(name) = &group.member {
            body["member"] = json!(name);
        }
    }
    body.to_string()
}

fn publish(command: &str, reply: &str, headers: &str, payload: &str) -> Vec<u8> {
    let space = if reply.is_empty() { "" } else { " " };
    let text = if headers.is_empty() {
        format!("PUB $mq9.AI.MSG.{command}{space}{reply} {}\r\n{payload}\r\n", payload.len())
    } else {
        let block = format!("NATS/1.0\r\n{headers}\r\n");
        let (head, total) = (block.len(), block.len() + payload.len());
        format!("HPUB $mq9.AI.MSG.{command}{space}{reply} {head} {total}\r\n{block}{payload}\r\n")
    };
    text.into_bytes()
}
