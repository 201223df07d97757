//! Every command of the protocol in one table: its subject, who carries it out, and how a refusal looks.
//!
//! Knows neither clients nor mailboxes.

/// Subjects of the broker itself: no client can listen in, however wide its wildcard.
pub const PREFIX: &[u8] = b"$mq9.AI.";
/// Where messages are sent: then the address.
pub const SEND: &[u8] = b"$mq9.AI.MSG.SEND.";
/// Where messages are fetched: then the address.
pub const FETCH: &[u8] = b"$mq9.AI.MSG.FETCH.";
/// Where deliveries are acknowledged: then the address.
pub const ACK: &[u8] = b"$mq9.AI.MSG.ACK.";
/// Where deliveries of the raw format are acknowledged: then group in base64url, `msg_id`, address.
pub const RAW_ACK: &[u8] = b"$mq9.AI.MSG.RACK.";

/// Where the first dialect sends and listens: then address and priority.
pub const INBOX: &[u8] = b"$mq9.AI.INBOX.";
/// Where the second dialect does: then the address and, but for `normal`, the priority.
pub const MAILBOX_MSG: &[u8] = b"$mq9.AI.MAILBOX.MSG.";
/// Where a message is deleted: then address and `msg_id`.
pub const DELETE: &[u8] = b"$mq9.AI.MSG.DELETE.";
/// The same in the second dialect.
pub const MAILBOX_DELETE: &[u8] = b"$mq9.AI.MAILBOX.DELETE.";
/// Where everybody is told: then domain and event.
pub const BROADCAST: &[u8] = b"$mq9.AI.BROADCAST.";

/// The members a reply has besides `error`, here with the values they have in a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// `error` alone.
    Plain,
    /// With `msg_id`.
    Sent,
    /// With `messages`.
    Messages,
    /// No JSON: messages of their own, and a status.
    Raw,
    /// With `mail_id`, `unread` and `messages`.
    Unread,
    /// With `deleted`.
    Deleted,
    /// With `mail_address`.
    Created,
    /// With `removed`.
    Removed,
    /// With `purged`.
    Purged,
    /// With `groups`.
    Groups,
    /// With `agents` and `total`.
    Agents,
    /// With `mailboxes`.
    Mailboxes,
    /// With `mailbox`.
    Mailbox,
    /// With the figures of `ADMIN.STATUS`.
    Status,
    /// An error as JetStream has it.
    JetStream,
}

impl Shape {
    /// What stands behind the error in a refusal.
    pub fn rest(self) -> &'static str {
        match self {
            Shape::Plain | Shape::Raw | Shape::JetStream => "}",
            Shape::Sent => r#","msg_id":-1}"#,
            Shape::Messages => r#","messages":[]}"#,
            Shape::Unread => r#","mail_id":"","unread":0,"messages":[]}"#,
            Shape::Deleted => r#","deleted":false}"#,
            Shape::Created => r#","mail_address":""}"#,
            Shape::Removed => r#","removed":false}"#,
            Shape::Purged => r#","purged":0}"#,
            Shape::Groups => r#","groups":[]}"#,
            Shape::Agents => r#","agents":[],"total":0}"#,
            Shape::Mailboxes => r#","mailboxes":[]}"#,
            Shape::Mailbox => r#","mailbox":null}"#,
            Shape::Status => concat!(
                r#","version":""#,
                env!("CARGO_PKG_VERSION"),
                r#"","clients":0,"mailboxes":0,"waiting":0,"log_bytes":0,"live_bytes":0,"damage":0,"#,
                r#""writes_stopped":""}"#
            ),
        }
    }

    /// A reply that refuses.
    pub fn refusal(self, error: &str) -> Vec<u8> {
        let mut text = b"{\"error\":".to_vec();
        if self == Shape::JetStream {
            text.extend_from_slice(b"{\"code\":503,\"err_code\":10077,\"description\":");
            let _ = serde_json::to_writer(&mut text, error);
            text.extend_from_slice(b"}}");
            return text;
        }
        // A Vec takes everything, and text is always JSON.
        let _ = serde_json::to_writer(&mut text, error);
        text.extend_from_slice(self.rest().as_bytes());
        text
    }
}

/// Who carries out a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The partition of its mailbox: once per message.
    Partition,
    /// The caller of the engine: a control command.
    Caller,
    /// The caller, who also asks who the client is: an operator, an owner, a user with a permission or a quota of
    /// its own. A responder must not be made to give it in its own name.
    CallerForUser,
}

/// One command.
#[derive(Debug)]
pub struct Command {
    /// What stands behind [`PREFIX`]; one that ends in a dot goes on with an address or more.
    pub name: &'static str,
    /// Who carries it out.
    pub by: By,
    /// How it answers.
    pub shape: Shape,
}

/// All of them.
pub const COMMANDS: [Command; 40] = [
    command("MSG.SEND.", By::Partition, Shape::Sent),
    command("MSG.FETCH.", By::Partition, Shape::Messages),
    command("MSG.ACK.", By::Partition, Shape::Plain),
    command("MSG.RACK.", By::Partition, Shape::Plain),
    command("INBOX.", By::Partition, Shape::Sent),
    command("MAILBOX.MSG.", By::Partition, Shape::Sent),
    command("BROADCAST.", By::Partition, Shape::Sent),
    command("MSG.QUERY.", By::Caller, Shape::Messages),
    command("MSG.DELETE.", By::Caller, Shape::Deleted),
    command("MAILBOX.QUERY.", By::CallerForUser, Shape::Unread),
    command("MAILBOX.DELETE.", By::Caller, Shape::Deleted),
    command("MAILBOX.CREATE", By::CallerForUser, Shape::Created),
    command("MAILBOX.UPDATE.", By::CallerForUser, Shape::Created),
    command("MAILBOX.REMOVE.", By::CallerForUser, Shape::Removed),
    command("MAILBOX.PURGE.", By::CallerForUser, Shape::Purged),
    command("GROUP.REMOVE.", By::CallerForUser, Shape::Removed),
    command("GROUP.LIST.", By::CallerForUser, Shape::Groups),
    command("PUBLIC.LIST", By::Caller, Shape::Mailboxes),
    command("AGENT.DISCOVER", By::CallerForUser, Shape::Agents),
    command("AGENT.REGISTER", By::CallerForUser, Shape::Plain),
    command("AGENT.UNREGISTER", By::CallerForUser, Shape::Plain),
    command("AGENT.REPORT", By::CallerForUser, Shape::Plain),
    command("ADMIN.STATUS", By::CallerForUser, Shape::Status),
    command("ADMIN.MAILBOX.LIST", By::CallerForUser, Shape::Mailboxes),
    command("ADMIN.MAILBOX.SHOW.", By::CallerForUser, Shape::Mailbox),
    command("ADMIN.ACTIVITY", By::CallerForUser, Shape::Plain),
    command("ADMIN.ACCESS", By::CallerForUser, Shape::Plain),
    command("ADMIN.SERVER.VARZ", By::CallerForUser, Shape::Plain),
    command("ADMIN.SERVER.CONNZ", By::CallerForUser, Shape::Plain),
    command("ADMIN.SERVER.YIELD", By::CallerForUser, Shape::Plain),
    command("ADMIN.DEAD.RESOLVED", By::CallerForUser, Shape::Plain),
    command("ADMIN.DEAD.STREAMS", By::CallerForUser, Shape::Plain),
    command("ADMIN.DEAD.REPLAY.", By::CallerForUser, Shape::Plain),
    command("ADMIN.DEAD.RESOLVE.", By::CallerForUser, Shape::Plain),
    command("ADMIN.STREAM.QUERY.", By::CallerForUser, Shape::Messages),
    command("ADMIN.SCHEDULE.FIRE", By::CallerForUser, Shape::Plain),
    command("ADMIN.SCHEDULE.NOTE", By::CallerForUser, Shape::Plain),
    command("ADMIN.SCHEDULE.LIST", By::CallerForUser, Shape::Plain),
    // Whatever is asked of them later is not for a responder either.
    command("AGENT.", By::CallerForUser, Shape::Plain),
    command("ADMIN.", By::CallerForUser, Shape::Plain),
];

const fn command(name: &'static str, by: By, shape: Shape) -> Command {
    Command { name, by, shape }
}

/// The command that is given by publishing to `subject`.
pub fn find(subject: &[u8]) -> Option<&'static Command> {
    let name = subject.strip_prefix(PREFIX)?;
    COMMANDS.iter().find(|command| name.starts_with(command.name.as_bytes()))
}

/// Whether the caller of the engine may serve this pattern: below [`PREFIX`] only what stands in the table, or nobody
/// would know how it is refused and who may be made to ask for it.
pub fn may_be_served(pattern: &[u8]) -> bool {
    let Some(name) = pattern.strip_prefix(PREFIX) else { return true };
    let name = name.strip_suffix(b">").unwrap_or(name);
    COMMANDS.iter().any(|known| known.name.as_bytes() == name && known.by != By::Partition)
}

/// How the command at `subject` answers; one that does not exist has `error` alone.
pub fn shape_of(subject: &[u8]) -> Shape {
    find(subject).map_or(Shape::Plain, |command| command.shape)
}
