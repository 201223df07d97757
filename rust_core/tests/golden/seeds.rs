//! Inputs from which the fuzz targets start: the golden files in the shapes those targets read.

use std::path::Path;

use mq9_core::group::Group;
use mq9_core::log::Lsn;
use mq9_core::log::{Found, Header, Scan};
use mq9_core::mailbox::{Entry, Lane};
use mq9_core::wire::section;

use crate::script::full_policy;

pub fn write(files: &[(String, Vec<u8>)]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds");
    let save = |target: &str, name: &str, bytes: &[u8]| {
        let folder = root.join(target);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(name), bytes).unwrap();
    };
    let find = |name: &str| &files.iter().find(|file| file.0.starts_with(name)).unwrap().1;
    let (segment, checkpoint) = (find("segment-0000000001"), find("checkpoint-"));
    let salt = Header::decode("", segment).unwrap().unwrap().salt;

    let mut records = Vec::new();
    for found in Scan::new(segment, 1, salt, 80) {
        let Found::Record { record, .. } = found else { panic!("{found:?}") };
        let mut seed = vec![record.kind];
        seed.extend_from_slice(record.body);
        save("record_decode", &format!("kind-{:02}", record.kind), &seed);
        records.extend_from_slice(&[1, record.kind, record.flags, record.mailbox as u8]);
        records.extend_from_slice(&(record.body.len() as u16).to_le_bytes());
        records.extend_from_slice(record.body);
    }
    let mut sections = Vec::new();
    let mut at = 8;
    while let Some(header) = checkpoint[at..].first_chunk::<{ section::HEADER }>() {
        let end = at + section::HEADER + section::body_len(header) as usize;
        let (kind, body) = section::decode(&checkpoint[at..end]).unwrap();
        sections.extend_from_slice(&[7, kind]);
        sections.extend_from_slice(&(body.len() as u16).to_le_bytes());
        sections.extend_from_slice(body);
        at = end;
    }
    save("recovery", "records", &records);
    save("recovery", "records-and-sections", &[records, sections].concat());
    let mut raw = Vec::new();
    for (name, bytes) in [(1, segment), (5, checkpoint)] {
        raw.extend_from_slice(&[0, name]);
        raw.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
        raw.extend_from_slice(bytes);
    }
    save("recovery", "raw-files", &raw);

    let mut policy = vec![0];
    full_policy().encode(&mut policy);
    save("record_decode", "policy", &policy);
    let mut group = vec![0];
    Group::new([3; 10]).snapshot().encode(&mut group);
    save("record_decode", "group", &group);
    let mut lane = Lane::default();
    for msg_id in [1, 2, 1 << 40] {
        lane.put(Entry { msg_id, at: Lsn::new(1, 80), len: 70, create_ms: 5, flags: 1 });
    }
    let mut encoded = vec![0];
    lane.snapshot().encode(&mut encoded);
    save("record_decode", "lane", &encoded);
}
