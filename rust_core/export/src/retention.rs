//! Retention: files of old hours are removed, and the manifest says how far that went.
//!
//! Owns which files go. Looks only into the hours that go, so that it costs the same however much is kept.

use crate::error::{Error, Result};
use crate::export::{EVENTS, Export, MESSAGES, position_of};
use crate::hours::Hour;
use crate::manifest::Position;

impl Export {
    /// Removes the files of hours that began before a wall time; how many.
    ///
    /// Before that the manifest says so: a reader that comes later can tell that it has missed something. It goes on
    /// saying what was written. Files that are not counted yet stay.
    pub fn forget(&mut self, before_ms: u64) -> Result<u64> {
        let first = Hour::of(before_ms).folder();
        let mut removed = 0;
        let mut old = Vec::new();
        for dataset in [MESSAGES, EVENTS] {
            for folder in self.old_hours(dataset, &first)? {
                let files = self.counted(&folder)?;
                old.push((folder, files));
            }
        }
        let positions = old.iter().flat_map(|(_, files)| files).map(|(position, _)| *position);
        // None is less than any.
        let highest = positions.max();
        if highest > self.manifest.forgotten {
            let mut next = self.manifest.clone();
            next.forgotten = highest;
            next.save(&*self.tree)?;
            self.manifest = next;
        }
        for (folder, files) in old {
            for (_, path) in files {
                self.tree.remove(&path).map_err(|e| Error::io("remove", &path, e))?;
                removed += 1;
            }
            // Rows of this hour may come yet, of messages that were delayed: they make it anew.
            self.folders.remove(&folder);
            self.remove_if_empty(&folder)?;
            if let Some((day, _)) = folder.rsplit_once('/') {
                self.remove_if_empty(day)?;
            }
        }
        Ok(removed)
    }

    /// The folders of a dataset's hours before one.
    fn old_hours(&self, dataset: &str, first: &str) -> Result<Vec<String>> {
        let mut old = Vec::new();
        // Folders of hours are as long as each other, so that their names are in the order of time.
        let Some((first_day, _)) = first.split_once('/') else { return Ok(old) };
        for day in self.inside(dataset)? {
            if day.len() != first_day.len() || day.as_str() > first_day {
                continue;
            }
            for hour in self.inside(&format!("{dataset}/{day}"))? {
                let name = format!("{day}/{hour}");
                if name.len() == first.len() && name.as_str() < first {
                    old.push(format!("{dataset}/{name}"));
                }
            }
        }
        Ok(old)
    }

    fn inside(&self, folder: &str) -> Result<Vec<String>> {
        self.tree.folders(folder).map_err(|e| Error::io("list", folder, e))
    }

    /// The files in a folder that the manifest counts.
    fn counted(&self, folder: &str) -> Result<Vec<(Position, String)>> {
        let files = self.tree.files(folder).map_err(|e| Error::io("list", folder, e))?;
        let placed = files.into_iter().filter_map(|path| Some((position_of(&path)?, path)));
        Ok(placed.filter(|(position, _)| *position < self.manifest.position).collect())
    }

    fn remove_if_empty(&self, folder: &str) -> Result<()> {
        self.tree.remove_folder(folder).map_err(|e| Error::io("remove", folder, e))
    }
}
