//! Everything that can go wrong, with its cause. The binding maps each variant to one exception.

use std::io;

/// What a store operation failed with. Unless a variant says otherwise, nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No mailbox of that address.
    #[error("mailbox {0} does not exist")]
    MailboxNotFound(String),
    /// The address is taken.
    #[error("mailbox {0} already exists")]
    MailboxExists(String),
    /// No stored message of that `msg_id`.
    #[error("message not found")]
    MessageNotFound,
    /// The address breaks a rule of the address format.
    #[error("invalid mail_address {address:?}: {rule}")]
    InvalidAddress {
        /// What was given, shortened.
        address: String,
        /// The rule it breaks.
        rule: &'static str,
    },
    /// A field of a request is out of its range.
    #[error("invalid {field}: {problem}")]
    InvalidField {
        /// Which field.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The message is larger than the store or the mailbox takes.
    #[error("message of {size} bytes is larger than the limit of {limit} bytes")]
    MessageTooLarge {
        /// Bytes of the message.
        size: u64,
        /// The limit it exceeds.
        limit: u64,
    },
    /// The mailbox is at a limit and discards new messages.
    #[error("mailbox {mailbox} is full: {limit}")]
    MailboxFull {
        /// Its address.
        mailbox: String,
        /// The limit reached, such as `max_msgs 100`.
        limit: String,
    },
    /// The mailbox holds more messages than whoever wants them gone has seen.
    #[error("mailbox {mailbox} has {found} messages by now, not {expected}")]
    MoreMessages {
        /// Its address.
        mailbox: String,
        /// How many it holds, delayed ones included.
        found: u64,
        /// How many were expected.
        expected: u64,
    },
    /// The mailbox has as many consumer groups as it may have.
    #[error("quota max_groups reached: at most {limit} groups of mailbox {mailbox}")]
    TooManyGroups {
        /// Its address.
        mailbox: String,
        /// The limit.
        limit: usize,
    },
    /// Clients have as much as they may have.
    #[error("quota {setting} reached: at most {limit} {what}")]
    QuotaExceeded {
        /// The setting that says so.
        setting: &'static str,
        /// The limit.
        limit: u64,
        /// Of what.
        what: &'static str,
    },
    /// The mailbox has no group of that name, or it was removed.
    #[error("group {group} of mailbox {mailbox} does not exist")]
    GroupNotFound {
        /// The mailbox's address.
        mailbox: String,
        /// The group.
        group: String,
    },
    /// An acknowledgement of a message that the group was never given.
    #[error("group {group} has not been given msg_id {msg_id}")]
    NotGiven {
        /// The group.
        group: String,
        /// The message.
        msg_id: u64,
    },
    /// Another process holds the data directory.
    #[error("the data directory is in use by another process")]
    Locked,
    /// There is no space for more records. Reading goes on; writing resumes when space is back.
    #[error("the disk is full: {0}")]
    DiskFull(#[source] io::Error),
    /// The operating system refused a file operation. The outcome of the command is unknown if it
    /// had begun writing: it is never acknowledged, but it may be found stored later.
    #[error("cannot {action} {file}: {source}")]
    Io {
        /// What was attempted: `write`, `read`, `create`, ...
        action: &'static str,
        /// The file's name in the data directory.
        file: String,
        /// The system's answer.
        source: io::Error,
    },
    /// An earlier sync failed, so what the disk holds is unknown: nothing more is acknowledged.
    #[error("writes stopped after a failed sync ({0}); restart the broker once the disk is sound")]
    WritesStopped(String),
    /// Another node of the cluster carries out commands.
    #[error("another node of the cluster leads")]
    NotLeading,
    /// The cluster's stream does not take what is there already. It is over when the stream goes on.
    #[error("the cluster's stream is behind; try again")]
    StreamBehind,
    /// The own log cannot be made to end where the stream does.
    #[error("the log does not fit the cluster's stream: {0}")]
    NotTied(String),
    /// What cannot be has happened: a mistake in the store. The command was not carried out.
    #[error("internal error: {0}")]
    Internal(&'static str),
    /// A file was written by a newer version.
    #[error("{file} at offset {offset} holds {what}, written by a newer version of mq9")]
    NewerFormat {
        /// The file's name in the data directory.
        file: String,
        /// Where in it.
        offset: u64,
        /// What was found there.
        what: String,
    },
}

impl Error {
    /// What kind of error it is, in one word that clients may rely on: the text is for people.
    pub fn kind(&self) -> &'static str {
        match self {
            Error::MailboxNotFound(_) => "mailbox_not_found",
            Error::MailboxExists(_) => "mailbox_exists",
            Error::MessageNotFound => "message_not_found",
            Error::InvalidAddress { .. } => "invalid_address",
            Error::InvalidField { .. } => "invalid_request",
            Error::MessageTooLarge { .. } => "message_too_large",
            Error::MailboxFull { .. } => "mailbox_full",
            Error::MoreMessages { .. } => "more_messages",
            Error::TooManyGroups { .. } => "too_many_groups",
            Error::QuotaExceeded { .. } => "quota_exceeded",
            Error::GroupNotFound { .. } => "group_not_found",
            Error::NotGiven { .. } => "not_given",
            Error::Locked => "store_locked",
            Error::DiskFull(_) => "disk_full",
            Error::Io { .. } => "storage_error",
            Error::WritesStopped(_) => "writes_stopped",
            Error::NotLeading => "not_leading",
            Error::StreamBehind => "stream_behind",
            Error::NotTied(_) => "not_tied",
            Error::Internal(_) => "internal_error",
            Error::NewerFormat { .. } => "newer_format",
        }
    }

    /// Wraps an error of the operating system, telling a full disk from other failures.
    pub fn io(action: &'static str, file: impl Into<String>, source: io::Error) -> Error {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::DiskFull(source),
            _ => Error::Io { action, file: file.into(), source },
        }
    }
}

/// The result of a store operation.
pub type Result<T> = std::result::Result<T, Error>;
