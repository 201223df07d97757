//! A group as bytes, for checkpoints.
//!
//! Owns the layout; must not know where the bytes are kept or who checks that they are whole. Leases
//! are volatile and not stored: in a decoded group everything pending is available, and everything
//! else is as it was. All numbers are little-endian.
//!
//! | bytes  | field                                                                  |
//! | ------ | ---------------------------------------------------------------------- |
//! | 80     | start, a u64 per level                                                 |
//! | 80     | cursors, a u64 per level                                               |
//! | 4      | number of members                                                      |
//! | ...    | members, in the order in which the deliveries first name them          |
//! | 4      | number of deliveries                                                   |
//! | 17 × n | deliveries, in delivery order                                          |
//!
//! | bytes | member that has a name  |   | bytes | member that is a connection |
//! | ----- | ----------------------- | - | ----- | --------------------------- |
//! | 1     | 0                       |   | 1     | 1                           |
//! | 4     | length of the name      |   | 4     | epoch                       |
//! | n     | the name, UTF-8         |   | 8     | connection                  |
//!
//! | bytes | delivery                                         |
//! | ----- | ------------------------------------------------ |
//! | 8     | `msg_id`                                         |
//! | 1     | level                                            |
//! | 4     | count                                            |
//! | 4     | which member, from 0; `0xffff_ffff` for nobody   |

use hashbrown::HashMap;

use crate::mailbox::{ById, LEVELS, Level};
use crate::wire::bytes::{Put, Reader};

use super::member::{MemberId, Names};
use super::{Delivered, Delivery, Group, Member};

const NAMED: u8 = 0;
const CONN: u8 = 1;
const NOBODY: u32 = u32::MAX;
const DELIVERY_LEN: usize = 17;

/// A group as it was when the snapshot was taken.
#[derive(Debug)]
pub struct GroupSnapshot {
    start: [u64; LEVELS],
    cursors: [u64; LEVELS],
    deliveries: ById<Delivery>,
    gone: ById<Delivery>,
    members: Names,
}

impl GroupSnapshot {
    /// Appends the group to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for number in self.start.iter().chain(&self.cursors) {
            out.put_u64(*number);
        }
        // What has gone is found to be so when the group is read back: its message is not there.
        let mut all: Vec<_> = self.deliveries.iter().chain(self.gone.iter()).collect();
        all.sort_unstable_by_key(|(_, delivery)| delivery.seq);
        let mut numbers: HashMap<MemberId, u32, foldhash::fast::RandomState> = HashMap::default();
        let mut members = Vec::new();
        let mut deliveries = Vec::with_capacity(all.len() * DELIVERY_LEN);
        for (msg_id, delivery) in &all {
            let member = delivery.member.and_then(|id| Some((id, self.members.get(id)?)));
            let number = member.map_or(NOBODY, |(id, member)| {
                let next = numbers.len() as u32;
                *numbers.entry(id).or_insert_with(|| {
                    encode_member(member, &mut members);
                    next
                })
            });
            deliveries.put_u64(*msg_id);
            deliveries.put_u8(delivery.level.number());
            deliveries.put_u32(delivery.count);
            deliveries.put_u32(number);
        }
        out.put_u32(numbers.len() as u32);
        out.extend_from_slice(&members);
        out.put_u32(all.len() as u32);
        out.extend_from_slice(&deliveries);
    }
}

impl Group {
    /// The group as it is now, to be encoded by another thread. Copies little, however much is delivered.
    pub fn snapshot(&self) -> GroupSnapshot {
        GroupSnapshot {
            start: self.start,
            cursors: self.cursors,
            deliveries: self.deliveries.clone(),
            gone: self.gone.clone(),
            members: self.members.names().clone(),
        }
    }

    /// How much a snapshot copies.
    pub fn unshared(&self) -> usize {
        let names = self.members.names().unshared();
        1 + self.deliveries.unshared() + self.gone.unshared() + names
    }

    /// The group that these bytes are, all of them; `None` if they are not what [`GroupSnapshot::encode`] writes.
    pub fn decode(bytes: &[u8]) -> Option<Group> {
        let mut input = Reader::new(bytes);
        let mut group = Group::new(decode_levels(&mut input)?);
        group.cursors = decode_levels(&mut input)?;
        if group.start.iter().zip(&group.cursors).any(|(start, cursor)| start > cursor) {
            return None;
        }
        // The count is not to be trusted with an allocation: members are taken as they come.
        let mut members: Vec<Member> = Vec::new();
        for _ in 0..input.u32()? {
            members.push(decode_member(&mut input)?);
        }
        let deliveries = input.u32()? as usize;
        if input.rest().len() != deliveries.checked_mul(DELIVERY_LEN)? {
            return None;
        }
        let mut ids = Vec::new();
        for _ in 0..deliveries {
            let msg_id = input.u64()?;
            let level = Level::new(input.u8()?)?;
            let delivered = Delivered { level, msg_id, count: input.u32()? };
            // At or after the cursor it would be delivered again as new.
            if msg_id >= group.cursors[level.index()] || group.deliveries.get(msg_id).is_some() {
                return None;
            }
            let member = match input.u32()? {
                NOBODY => None,
                number if (number as usize) < ids.len() => Some(ids[number as usize]),
                number if number as usize == ids.len() => {
                    let member = members.get(ids.len())?;
                    if group.members.id_of(member).is_some() {
                        return None;
                    }
                    ids.push(group.members.enter(member));
                    ids.last().copied()
                }
                _ => return None,
            };
            group.deliver(std::iter::once(delivered), member, None);
        }
        (ids.len() == members.len()).then_some(group)
    }
}

fn encode_member(member: &Member, out: &mut Vec<u8>) {
    match member {
        Member::Named(name) => {
            out.push(NAMED);
            out.put_u32(name.len() as u32);
            out.extend_from_slice(name.as_bytes());
        }
        Member::Conn { epoch, conn } => {
            out.push(CONN);
            out.put_u32(*epoch);
            out.put_u64(*conn);
        }
    }
}

fn decode_levels(from: &mut Reader<'_>) -> Option<[u64; LEVELS]> {
    let mut numbers = [0; LEVELS];
    for number in &mut numbers {
        *number = from.u64()?;
    }
    Some(numbers)
}

fn decode_member(from: &mut Reader<'_>) -> Option<Member> {
    match from.u8()? {
        NAMED => {
            let len = from.u32()? as usize;
            Some(Member::named(std::str::from_utf8(from.take(len)?).ok()?))
        }
        CONN => Some(Member::Conn { epoch: from.u32()?, conn: from.u64()? }),
        _ => None,
    }
}
