//! Lookups that wait for definitions.

use crate::flags::Flags;
use crate::job::Job;
use crate::number::NumberMap;
use crate::slab::{Key, Slab};
use crate::symbol::Symbol;

/// The waiting lookups, each with the symbols that it misses.
pub(crate) struct WaitingLookups {
    lookups: Slab<(Job, Vec<Symbol>)>,
    by_symbol: NumberMap<Symbol, Vec<Key>>,
}

impl WaitingLookups {
    pub(super) fn new() -> Self {
        Self {
            lookups: Slab::new(),
            by_symbol: NumberMap::default(),
        }
    }

    /// The lookups, and the symbols that they miss.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(Job, Vec<Symbol>)> {
        self.lookups.iter()
    }

    /// Queues a lookup until one of the symbols is defined.
    pub(super) fn add(&mut self, job: Job, missing: Vec<Symbol>) {
        let promise = job.promise().cloned();
        let key = self.lookups.insert((job, missing.clone()));
        promise.into_iter().for_each(|it| it.note_wait(key));
        for symbol in missing {
            self.by_symbol.entry(symbol).or_default().push(key);
        }
    }

    /// Takes a lookup out.
    pub(super) fn take(&mut self, key: Key) -> Option<(Job, Vec<Symbol>)> {
        self.take_but(key, None)
    }

    /// Takes the lookups out that are `lost`.
    pub(super) fn take_lost(&mut self, lost: impl Fn(&Job) -> bool) -> Vec<(Job, Vec<Symbol>)> {
        let is_lost = |key: &Key| self.lookups.get(*key).is_some_and(|(job, _)| lost(job));
        let keys: Vec<Key> = self.lookups.keys().into_iter().filter(is_lost).collect();
        keys.into_iter().filter_map(|key| self.take(key)).collect()
    }

    /// Takes a lookup out; the list of `but` does not have it any more.
    fn take_but(&mut self, key: Key, but: Option<Symbol>) -> Option<(Job, Vec<Symbol>)> {
        let (job, missing) = self.lookups.remove(key)?;
        for other in missing.iter().filter(|other| Some(**other) != but) {
            if let Some(keys) = self.by_symbol.get_mut(other) {
                keys.retain(|waiting| *waiting != key);
                if keys.is_empty() {
                    self.by_symbol.remove(other);
                }
            }
        }
        Some((job, missing))
    }

    /// Takes the lookups out that wait for one of these.
    pub(super) fn wake(&mut self, symbols: &[(Symbol, Flags)]) -> Vec<Job> {
        let mut woken = Vec::new();
        if self.by_symbol.is_empty() {
            return woken;
        }
        for (symbol, _) in symbols {
            for key in self.by_symbol.remove(symbol).unwrap_or_default() {
                woken.extend(self.take_but(key, Some(*symbol)).map(|(job, _)| job));
            }
        }
        woken
    }

    /// Takes all lookups out.
    pub(super) fn drain(&mut self) -> Vec<Job> {
        self.by_symbol.clear();
        let all = self.lookups.drain().into_iter();
        all.map(|(job, _)| job).collect()
    }
}
