//! A damaged store that is only looked at shows what an open of the usual kind shows, and stays as it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use mq9_core::disk::Disk;
use mq9_core::store::{ReadOnlyDisk, Store};
use mq9_sim::SimDisk;

use crate::house::{LATE, Left, open, options};
use crate::layout::{Layout, changed};
use crate::view::view;

fn contents(disk: &SimDisk) -> BTreeMap<String, Vec<u8>> {
    disk.names().into_iter().map(|name| (name.clone(), disk.read_file(&name).unwrap())).collect()
}

fn check(disk: &SimDisk, context: &str) {
    let before = contents(disk);
    let shown = Arc::new(ReadOnlyDisk::new(Arc::new(disk.clone())));
    let mut store = Store::open(shown, options(), 5, LATE).unwrap();
    let seen = view(&mut store);
    let told: Vec<_> = store.damage().iter().map(|d| (d.file.clone(), d.kind.clone())).collect();
    for damage in store.damage() {
        assert_eq!(damage.set_aside, None, "{context}");
    }
    store.flush().unwrap();
    drop(store);
    assert!(contents(disk) == before, "{context}: something was changed");

    let mut store = open(disk, LATE);
    assert!(view(&mut store) == seen, "{context}");
    let again: Vec<_> = store.damage().iter().map(|d| (d.file.clone(), d.kind.clone())).collect();
    assert_eq!(again, told, "{context}");
}

#[test]
fn looking_changes_nothing_and_shows_what_is_there() {
    for left in Left::ALL {
        let layout = Layout::of(left.disk());
        check(&layout.disk.snapshot(), &format!("{left:?}"));
        for name in layout.disk.names() {
            let deleted = layout.disk.snapshot();
            deleted.remove(&name).unwrap();
            check(&deleted, &format!("{left:?}: {name} is missing"));
            let zeroed = changed(&layout.disk, &name, |bytes| bytes.fill(0));
            check(&zeroed, &format!("{left:?}: {name} is all zeros"));
            let cut = changed(&layout.disk, &name, |bytes| bytes.truncate(bytes.len() / 2));
            check(&cut, &format!("{left:?}: {name} is cut"));
            let turned = changed(&layout.disk, &name, |bytes| {
                let middle = bytes.len() / 3;
                bytes[middle] ^= 4;
            });
            check(&turned, &format!("{left:?}: {name} has a turned bit"));
        }
    }
}
