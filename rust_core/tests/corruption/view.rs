//! Everything that can be seen of a store, to compare with what must be there.

use std::collections::BTreeMap;

use mq9_core::mailbox::{LEVELS, Policy};
use mq9_core::store::{Fetch, FetchOutcome, GroupFetch, MemberId, Start, Store};

use crate::house::LATE;

/// A message: level, time of entry, and all its fields as encoded.
pub type Seen = (u8, u64, Vec<u8>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailboxView {
    pub desc: String,
    pub created_ms: u64,
    pub expires_ms: u64,
    pub delayed: u64,
    pub next_id: u64,
    pub policy: Policy,
    pub messages: BTreeMap<u64, Seen>,
    pub groups: BTreeMap<String, GroupView>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupView {
    pub cursors: [u64; LEVELS],
    pub outstanding: u64,
}

/// All mailboxes by address.
pub type View = BTreeMap<String, MailboxView>;

/// What a group would be given: how often it was, by `msg_id`.
pub type Given = BTreeMap<(String, String), BTreeMap<u64, u32>>;

/// Reads all messages of all mailboxes.
pub fn view(store: &mut Store) -> View {
    store.tick(LATE);
    let addresses: Vec<String> =
        store.mailboxes(0, usize::MAX).0.into_iter().map(|info| info.address).collect();
    let mut view = View::new();
    for address in addresses {
        let FetchOutcome::Messages(batch) = store.fetch(Fetch::all(&address), LATE).unwrap() else {
            panic!("did not ask to wait")
        };
        let messages = batch.iter().map(|(meta, message)| {
            let mut body = Vec::new();
            message.encode(&mut body);
            (meta.msg_id, (meta.level.number(), meta.create_ms, body))
        });
        let messages: BTreeMap<u64, Seen> = messages.collect();
        let info = store.mailbox(&address, LATE).unwrap();
        assert_eq!(info.messages, messages.len() as u64, "{address}");
        let groups = info
            .groups
            .into_iter()
            .map(|g| (g.name, GroupView { cursors: g.cursors, outstanding: g.outstanding }));
        let mailbox = MailboxView {
            desc: info.desc,
            created_ms: info.created_ms,
            expires_ms: info.expires_ms,
            delayed: info.delayed,
            next_id: info.next_id,
            policy: info.policy,
            messages,
            groups: groups.collect(),
        };
        view.insert(address, mailbox);
    }
    view
}

/// Fetches all there is for every group, except where a fetch would move dead messages.
pub fn given(store: &mut Store, view: &View) -> Given {
    let mut given = Given::new();
    for (address, mailbox) in view.iter().filter(|(_, mailbox)| mailbox.policy.max_deliver == 0) {
        for name in mailbox.groups.keys() {
            let member = MemberId::Named("newcomer".to_owned());
            let group = Some(GroupFetch { name: name.clone(), member, force: false });
            let request = Fetch { group, start: Start::Latest, ..Fetch::all(address) };
            let FetchOutcome::Messages(batch) = store.fetch(request, LATE).unwrap() else {
                panic!("did not ask to wait")
            };
            let counts = batch.iter().map(|(meta, _)| (meta.msg_id, meta.deliveries)).collect();
            given.insert((address.clone(), name.clone()), counts);
        }
    }
    given
}
