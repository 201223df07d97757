//! Checks what clients see of a store after a restart, and what a crash may not change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mq9_core::disk::Disk;
use mq9_core::error::Error;
use mq9_core::mailbox::{LEVELS, Policy};
use mq9_core::store::{
    Ack, AckKind, Amount, Damage, DamageKind, Fetched, MailboxInfo, Send, Store,
};
use mq9_core::time::Now;
use mq9_core::wire::op::Message;
use mq9_sim::SimDisk;

use crate::world::{FAR, Given, NEAR, OPTIONS, REPLACING, everything, fetch, open};

/// A group as clients see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenGroup {
    pub cursors: [u64; LEVELS],
    /// Payloads it is given when it asks for all.
    pub drained: BTreeSet<String>,
}

/// A mailbox as clients see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenMailbox {
    pub created_ms: u64,
    pub policy: Policy,
    pub next_id: u64,
    /// Level and payload by `msg_id`.
    pub messages: BTreeMap<u64, (u8, String)>,
    /// The same of those whose place was taken, or whose time was over, by the time of looking.
    pub replaced: BTreeMap<u64, (u8, String)>,
    /// Payloads once everything delayed is due.
    pub later: BTreeSet<String>,
    pub groups: BTreeMap<String, SeenGroup>,
}

/// A store as clients see it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    pub mailboxes: BTreeMap<String, SeenMailbox>,
    /// Group and payload of every dead letter.
    pub dead: BTreeSet<(String, String)>,
}

fn reopen(disk: &SimDisk, now: Now) -> Result<Store, String> {
    let disk: Arc<dyn Disk> = Arc::new(disk.snapshot());
    let store = open(&disk, OPTIONS, now).map_err(|e| format!("does not open: {e}"))?;
    // A power cut may tear what was not synced. It takes nothing off whole files.
    let wrong = |damage: &&Damage| {
        let kind = &damage.kind;
        matches!(kind, DamageKind::CutShort | DamageKind::Segment | DamageKind::Checkpoint)
    };
    match store.damage().iter().find(wrong) {
        Some(damage) => Err(format!("false alarm: {damage}")),
        None => Ok(store),
    }
}

/// Opens copies of the disk and looks; an error is a violation by itself.
pub fn observe(disk: &SimDisk) -> Result<Seen, String> {
    let mut seen = Seen::default();
    let store = &mut reopen(disk, NEAR)?;
    let (list, _) = store.mailboxes(0, usize::MAX);
    check_usage(store, &list)?;
    for info in
        list.into_iter().filter(|info| info.expires_ms == 0 || info.expires_ms > NEAR.wall_ms)
    {
        let batch = everything(store, &info.address, NEAR).map_err(|e| e.to_string())?;
        // What becomes due only now gets its id now.
        let messages = by_id(&batch, NEAR.wall_ms);
        once(&info.address, messages.values().map(|(_, payload)| payload.clone()))?;
        if let Some(id) = messages.keys().find(|&&id| id >= info.next_id) {
            return Err(format!("{}: {id} is stored, next_id is {}", info.address, info.next_id));
        }
        let groups = info
            .groups
            .into_iter()
            .map(|g| (g.name, SeenGroup { cursors: g.cursors, drained: BTreeSet::new() }))
            .collect();
        let (created_ms, policy, next_id) = (info.created_ms, info.policy, info.next_id);
        let (replaced, later) = (BTreeMap::new(), BTreeSet::new());
        let mailbox =
            SeenMailbox { created_ms, policy, next_id, messages, replaced, later, groups };
        seen.mailboxes.insert(info.address, mailbox);
    }
    while store.tick(FAR) {}
    for (address, mailbox) in &mut seen.mailboxes {
        // Its own life may be over by then.
        let Ok(batch) = everything(store, address, FAR) else { continue };
        mailbox.later = once(address, batch.iter().map(|(_, m)| shown(&m)))?;
    }
    drain(disk, &mut seen)?;
    Ok(seen)
}

/// What is counted is what there is, altogether and for each owner.
fn check_usage(store: &Store, list: &[MailboxInfo]) -> Result<(), String> {
    let sum = |owner: Option<&str>| {
        let of = |info: &&MailboxInfo| owner.is_none() || info.policy.owner.as_deref() == owner;
        let own: Vec<_> = list.iter().filter(of).collect();
        let bytes = own.iter().map(|info| info.bytes + info.sent_id_bytes).sum();
        Amount { mailboxes: own.len() as u64, bytes }
    };
    let counted = [store.usage(), store.usage_of("ada"), store.usage_of("bob")];
    let there = [sum(None), sum(Some("ada")), sum(Some("bob"))];
    if counted == there { Ok(()) } else { Err(format!("{counted:?} are counted of {there:?}")) }
}

/// Notes what is in the mailboxes of a store now and was not any more when they were observed, at a later time.
pub fn note_replaced(seen: &mut Seen, store: &mut Store, now: Now) {
    for (address, mailbox) in &mut seen.mailboxes {
        let Ok(batch) = everything(store, address, now) else { continue };
        mailbox.replaced = by_id(&batch, u64::MAX);
        mailbox.replaced.retain(|id, _| !mailbox.messages.contains_key(id));
    }
}

/// Level and payload by `msg_id`, of messages created before that wall time.
fn by_id(batch: &Fetched, end_ms: u64) -> BTreeMap<u64, (u8, String)> {
    let created = batch.iter().filter(|(meta, _)| meta.create_ms < end_ms);
    created.map(|(meta, m)| (meta.msg_id, (meta.level.number(), shown(&m)))).collect()
}

fn drain(disk: &SimDisk, seen: &mut Seen) -> Result<(), String> {
    for (address, mailbox) in &mut seen.mailboxes {
        for (name, group) in &mut mailbox.groups {
            let store = &mut reopen(disk, NEAR)?;
            let drained = drain_group(store, address, name)?;
            group.drained = once(address, drained.into_iter().map(|(_, payload)| payload))?;
            for (group, payload) in dead_letters(store)? {
                seen.dead.insert((group, payload));
            }
        }
    }
    Ok(())
}

/// Everything a group is given, acknowledged as it comes, in order of delivery.
fn drain_group(
    store: &mut Store,
    address: &str,
    group: &str,
) -> Result<Vec<(u64, String)>, String> {
    let mut all = Vec::new();
    loop {
        let batch = fetch(store, address, group, "drain", 1000, NEAR).map_err(|e| e.to_string())?;
        let got: Vec<_> = batch.iter().map(|(meta, m)| (meta, text(m.payload))).collect();
        if got.is_empty() {
            return Ok(all);
        }
        if !got.is_sorted_by_key(|(meta, _)| (meta.level, meta.msg_id)) {
            return Err(format!("{address}/{group}: not in order: {got:?}"));
        }
        for (meta, payload) in got {
            ack_one(store, address, group, meta.msg_id).map_err(|e| e.to_string())?;
            all.push((meta.msg_id, payload));
        }
    }
}

fn ack_one(store: &mut Store, address: &str, group: &str, id: u64) -> Result<(), Error> {
    let kind = AckKind::Done { only: true };
    store.ack(&Ack { address, group, msg_ids: &[id], kind }, NEAR)
}

fn dead_letters(store: &mut Store) -> Result<Vec<(String, String)>, String> {
    let Ok(batch) = everything(store, "dead", NEAR) else { return Ok(Vec::new()) };
    let mut list: Vec<_> =
        batch.iter().map(|(_, m)| (died_in(&m).unwrap_or_default(), text(m.payload))).collect();
    list.sort();
    match list.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("dead twice: {:?}", pair[0])),
        None => Ok(list),
    }
}

/// The group that gave up a dead letter.
fn died_in(message: &Message<'_>) -> Option<String> {
    let headers = String::from_utf8_lossy(message.headers);
    headers.split("\r\n").find_map(|h| h.strip_prefix("mq9-dead-group: ")).map(str::to_owned)
}

/// What is seen of a message. One that died in two groups is in the dead-letter mailbox for each of them.
fn shown(message: &Message<'_>) -> String {
    let payload = text(message.payload);
    died_in(message).map_or(payload.clone(), |group| format!("{payload} of {group}"))
}

fn once(what: &str, payloads: impl Iterator<Item = String>) -> Result<BTreeSet<String>, String> {
    let mut set = BTreeSet::new();
    for payload in payloads {
        let shown = payload.clone();
        if !set.insert(payload) {
            return Err(format!("{what}: {shown} is there twice"));
        }
    }
    Ok(set)
}

/// The bytes as text, with the filling of a payload counted instead of shown.
fn text(bytes: &[u8]) -> String {
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    if let Some((start, _)) = text.split_once(REPLACING) {
        return format!("{start}{REPLACING}");
    }
    let start = text.trim_end_matches('x');
    format!("{start}{}", text.len() - start.len())
}

/// Compares what was found after a crash with the states the store had from the last acknowledged
/// one (first) to the one being made when the power went (last).
pub fn check(states: &[Seen], found: &Seen) -> Result<(), String> {
    for (address, mailbox) in &found.mailboxes {
        let before: Vec<_> = states.iter().filter_map(|s| s.mailboxes.get(address)).collect();
        let sent = |id: &u64, m: &(u8, String)| {
            before.iter().any(|s| s.messages.get(id) == Some(m) || s.replaced.get(id) == Some(m))
        };
        // A delayed message that nobody was promised may be lost, and with it that it took the place of another.
        let kept = |payload: &str| {
            before.iter().any(|s| s.replaced.values().any(|(_, replaced)| replaced == payload))
        };
        if let Some(message) = mailbox.messages.iter().find(|(id, m)| !sent(id, m)) {
            return Err(format!("{address}: invented {message:?}"));
        }
        let later = |payload: &&String| {
            !kept(payload) && !before.iter().any(|s| s.later.contains(*payload))
        };
        if let Some(payload) = mailbox.later.iter().find(later) {
            return Err(format!("{address}: {payload} comes later from nowhere"));
        }
        for (name, group) in &mailbox.groups {
            let known: Vec<_> = before.iter().filter_map(|s| s.groups.get(name)).collect();
            let given = |payload: &&String| {
                !kept(payload) && !known.iter().any(|g| g.drained.contains(*payload))
            };
            // A group whose start is not acknowledged may start anew.
            if let Some(payload) = group.drained.iter().find(given)
                && known.len() == states.len()
            {
                return Err(format!("{address}/{name}: {payload} is delivered again"));
            }
        }
    }
    for dead in &found.dead {
        if !states.iter().any(|s| s.dead.contains(dead)) {
            return Err(format!("dead letter {dead:?} is invented"));
        }
    }
    for (address, acknowledged) in &states[0].mailboxes {
        let same = |s: &Seen| {
            let now = s.mailboxes.get(address);
            now.filter(|now| now.created_ms == acknowledged.created_ms).cloned()
        };
        let kept: Vec<SeenMailbox> = states.iter().filter_map(same).collect();
        if kept.len() == states.len() {
            let Some(found_mailbox) = same(found) else {
                return Err(format!("mailbox {address} is lost"));
            };
            check_mailbox(address, &kept, &found_mailbox, states, found)?;
        }
    }
    Ok(())
}

fn check_mailbox(
    address: &str,
    kept: &[SeenMailbox],
    found: &SeenMailbox,
    states: &[Seen],
    all_found: &Seen,
) -> Result<(), String> {
    if kept.iter().all(|seen| seen.policy != found.policy) {
        return Err(format!("{address}: policy {:?}", found.policy));
    }
    if found.next_id < kept[0].next_id {
        return Err(format!("{address}: next_id {} < {}", found.next_id, kept[0].next_id));
    }
    for (id, message) in &kept[0].messages {
        let always = kept.iter().all(|s| s.messages.get(id) == Some(message));
        if always && found.messages.get(id) != Some(message) {
            return Err(format!("{address}: {id} {message:?} is lost"));
        }
    }
    for payload in &kept[0].later {
        if kept.iter().all(|s| s.later.contains(payload)) && !found.later.contains(payload) {
            return Err(format!("{address}: {payload} never comes"));
        }
    }
    // Nothing but sends goes to mailboxes of this name: what makes room comes with what needs it.
    if address.starts_with("limit") {
        let least = kept.iter().map(|s| s.messages.len()).min().unwrap_or(0);
        if found.messages.len() < least {
            return Err(format!("{address}: {} messages, not {least}", found.messages.len()));
        }
    }
    // The removal of a group is a promise like any other.
    for name in found.groups.keys() {
        if !kept.iter().any(|s| s.groups.contains_key(name)) {
            return Err(format!("{address}: group {name} came back"));
        }
    }
    for (name, group) in &kept[0].groups {
        // It may have been removed since.
        if !kept.iter().all(|s| s.groups.contains_key(name)) {
            continue;
        }
        let Some(found_group) = found.groups.get(name) else {
            return Err(format!("{address}: group {name} is lost"));
        };
        let groups: Vec<_> = kept.iter().filter_map(|s| s.groups.get(name)).collect();
        for level in 0..LEVELS {
            let least = groups.iter().map(|g| g.cursors[level]).min().unwrap_or(0);
            if found_group.cursors[level] < least {
                return Err(format!("{address}/{name}: cursor {level} is behind {least}"));
            }
        }
        let is_dead = |s: &Seen, p: &String| s.dead.contains(&(name.clone(), p.clone()));
        for payload in &group.drained {
            let owed = groups.iter().zip(states);
            let owed = owed.map(|(g, s)| g.drained.contains(payload) || is_dead(s, payload));
            let comes = found_group.drained.contains(payload);
            if owed.into_iter().all(|owed| owed) && !comes && !is_dead(all_found, payload) {
                return Err(format!("{address}/{name}: {payload} is never delivered"));
            }
            if comes && is_dead(all_found, payload) {
                return Err(format!("{address}/{name}: {payload} is dead and delivered"));
            }
        }
    }
    Ok(())
}

/// Deliveries that were acknowledged can still be confirmed, and are not made again after that.
pub fn check_given(disk: &SimDisk, given: &Given) -> Result<(), String> {
    let store = &mut reopen(disk, NEAR)?;
    for ((address, group), ids) in given {
        for &id in ids {
            ack_one(store, address, group, id)
                .map_err(|e| format!("{address}/{group}: ack of {id}: {e}"))?;
        }
        for (id, payload) in drain_group(store, address, group)? {
            if ids.contains(&id) {
                return Err(format!("{address}/{group}: {payload} again after its ack"));
            }
        }
    }
    Ok(())
}

/// Goes on after a crash: new messages get new ids and reach every group, and the next restart,
/// also from a power cut, finds all that the first found and what came after.
pub fn check_next_life(disk: &SimDisk, found: &Seen, power_cut: bool) -> Result<(), String> {
    let failed = |e: Error| e.to_string();
    let disk = disk.snapshot();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut store = open(&shared, OPTIONS, NEAR).map_err(failed)?;
    // As whoever runs it does: what goes by itself goes, also where nothing is sent.
    while store.tick(NEAR) {}
    let mut wanted = found.clone();
    for (address, mailbox) in &mut wanted.mailboxes {
        if mailbox.policy != Policy::default() || address == "dead" {
            continue;
        }
        let payload = format!("{address}-after");
        let id = store.send(address, &Send::new(payload.as_bytes()), NEAR).map_err(failed)?;
        let id = id.ok_or("no id")?;
        if id < mailbox.next_id {
            return Err(format!("{address}: {id} is used again, below {}", mailbox.next_id));
        }
        mailbox.next_id = id + 1;
        let payload = text(payload.as_bytes());
        mailbox.later.insert(payload.clone());
        for group in mailbox.groups.values_mut() {
            group.drained.insert(payload.clone());
        }
    }
    store.sync().map_err(failed)?;
    let disk = match power_cut {
        true => {
            drop(store);
            disk.crash_strict()
        }
        false => {
            store.close().map_err(failed)?;
            disk
        }
    };
    let again = observe(&disk)?;
    for (address, mailbox) in &mut wanted.mailboxes {
        let now = again.mailboxes.get(address).map_or(0, |m| m.next_id);
        mailbox.next_id = mailbox.next_id.max(now);
    }
    for (address, mailbox) in &wanted.mailboxes {
        let now = again.mailboxes.get(address);
        if now != Some(mailbox) {
            return Err(format!("next life of {address}:\n{now:?}\nwanted\n{mailbox:?}"));
        }
    }
    if again.dead != wanted.dead {
        return Err(format!("next life: dead {:?}, wanted {:?}", again.dead, wanted.dead));
    }
    Ok(())
}
