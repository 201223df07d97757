//! Deliveries in the model: acknowledged, returned, extended, moved when dead.

use mq9_core::mailbox::{LEVELS, Level, Policy};
use mq9_core::store::{AckKind, NewMailbox, Send};

use crate::model::{Model, Refusal, Reply};

impl Model {
    pub fn ack(
        &mut self,
        address: &str,
        name: &str,
        msg_ids: &[u64],
        kind: AckKind,
    ) -> Result<Reply, Refusal> {
        let mailbox = self.get(address)?;
        let Some(group) = mailbox.groups.iter().find(|group| group.name == name) else {
            return if msg_ids.is_empty() { Ok(Reply::Done) } else { Err(Refusal::NotGiven) };
        };
        let mut meant: Vec<u64> = Vec::new();
        for &msg_id in msg_ids {
            if kind == (AckKind::Done { only: false })
                && let Some(gone) = group.gone.iter().find(|gone| gone.msg_id == msg_id)
            {
                let before = group
                    .deliveries
                    .iter()
                    .filter(|d| d.member.as_ref() == Some(&gone.member) && d.order < gone.order);
                meant.extend(before.map(|delivery| delivery.msg_id));
                continue;
            }
            let Some(at) = group.deliveries.iter().position(|d| d.msg_id == msg_id) else {
                let stored = mailbox.messages.iter().find(|message| message.msg_id == msg_id);
                // Of a message that is gone nobody knows the level any more.
                let given = (1..=LEVELS).any(|level| {
                    stored.is_none_or(|message| usize::from(message.level) == level)
                        && (group.start[level - 1]..group.cursors[level - 1]).contains(&msg_id)
                });
                if !given || msg_id >= mailbox.next_id {
                    return Err(Refusal::NotGiven);
                }
                continue;
            };
            let member = &group.deliveries[at].member;
            if kind == (AckKind::Done { only: false }) && member.is_some() {
                let same = group.deliveries[..=at].iter().filter(|d| d.member == *member);
                meant.extend(same.map(|delivery| delivery.msg_id));
            } else {
                meant.push(msg_id);
            }
        }
        let mut seen = Vec::new();
        meant.retain(|msg_id| {
            !seen.contains(msg_id) && {
                seen.push(*msg_id);
                true
            }
        });
        let max_deliver = mailbox.policy.max_deliver;
        let mono_ms = self.now.mono_ms;
        let extended = mono_ms + self.ack_wait(address, 0);
        self.group(address, name).used_ms = mono_ms;
        match kind {
            AckKind::Done { .. } if !meant.is_empty() => self.confirm(address, name, &meant),
            AckKind::Return { delay_ms } if !meant.is_empty() => {
                for msg_id in meant {
                    let delivery = self.group(address, name).pending(msg_id).unwrap();
                    delivery.member = None;
                    delivery.until_ms = (delay_ms > 0).then_some(mono_ms + delay_ms);
                    let count = delivery.count;
                    self.group(address, name).tidy();
                    if (1..=count).contains(&max_deliver) {
                        let _ = self.bury(address, name, msg_id, "max_deliver");
                    }
                }
                self.touch(address);
            }
            AckKind::Progress => {
                for msg_id in meant {
                    let delivery = self.group(address, name).pending(msg_id).unwrap();
                    if delivery.member.is_some() {
                        // A lease that begins anew is nobody's delivery.
                        delivery.conn = delivery.conn.filter(|_| delivery.until_ms.is_some());
                        delivery.until_ms = delivery.until_ms.max(Some(extended));
                    }
                }
            }
            AckKind::Terminate => {
                for msg_id in meant {
                    self.bury(address, name, msg_id, "terminated")?;
                }
            }
            _ => {}
        }
        Ok(Reply::Done)
    }

    /// The group has done with these messages.
    fn confirm(&mut self, address: &str, name: &str, msg_ids: &[u64]) {
        for &msg_id in msg_ids {
            self.group(address, name).forget(msg_id);
            if self.find(address).is_some_and(|mailbox| mailbox.policy.work_queue) {
                self.take(address, msg_id);
            }
        }
        self.touch(address);
    }

    /// Moves a message to the dead-letter mailbox, if there is one.
    pub fn bury(
        &mut self,
        address: &str,
        name: &str,
        msg_id: u64,
        reason: &str,
    ) -> Result<(), Refusal> {
        let mailbox = self.get(address)?;
        let target = mailbox.policy.dead_letter.clone();
        let message = mailbox.messages.iter().find(|m| m.msg_id == msg_id).unwrap().clone();
        let owner = mailbox.policy.owner.clone();
        if let Some(target) = target {
            if self.find(&target).is_none() {
                let policy = Policy { owner, ..Policy::default() };
                let new = NewMailbox { address: &target, policy, ..Default::default() };
                self.create(&new)?;
            }
            let count = self.group(address, name).pending(msg_id).unwrap().count;
            let mut headers = format!(
                "{}mq9-dead-reason: {reason}\r\nmq9-dead-mailbox: {address}\r\n\
                 mq9-dead-group: {name}\r\nmq9-dead-msg-id: {msg_id}\r\n\
                 mq9-dead-deliveries: {count}\r\n",
                message.headers
            );
            if !message.key.is_empty() {
                headers += &format!("mq9-dead-key: {}\r\n", message.key);
            }
            let level = Level::new(message.level).unwrap();
            let copy = Send {
                memory: false,
                level,
                tags: &message.tags,
                headers: headers.as_bytes(),
                ..Send::new(&message.payload)
            };
            self.accept(&target, &copy, false)?;
        }
        self.confirm(address, name, &[msg_id]);
        Ok(())
    }
}
