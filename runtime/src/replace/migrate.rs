//! Variables that get another type: new storage, filled from the old by a function of the
//! embedder's at the moment of the commit.
//!
//! Code that knows the old storage would go on using it, so all of it must be in the set:
//! [`Replacing::check_users`] reads every body that may mention the variable. Names lead to the
//! new storage from the commit on: [`Names::relocate`](crate::code::names::Names::relocate).
//! A rollback goes back to the old storage, with the contents it had then. If the variable is
//! removed, its name leads to the new storage no longer ([`Redirection`]): both may be freed then.

use std::fmt;
use std::sync::{Arc, Weak};

use uruk_codegen::{Kind, SymbolId};
use uruk_session::Dylib;

use crate::code::module::Module;
use crate::code::names::Definition;
use crate::error::Error;
use crate::fork::gate;
use crate::replace::state::Replacing;

use super::plan::Planned;
use crate::error::replace::ReplaceError;

/// Fills new storage from old: the old bytes and their number, the new ones and theirs.
type Fill = dyn Fn(*const u8, usize, *mut u8, usize) + Send + Sync;

/// A migration that the embedder requested.
#[derive(Clone)]
pub(super) struct Migration {
    pub(super) global: String,
    pub(super) fill: Arc<Fill>,
}

impl fmt::Debug for Migration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Migration").field(&self.global).finish()
    }
}

/// A variable of the new module that takes the place of another.
pub(super) struct Migrating {
    pub(super) symbol: SymbolId,
    pub(super) old_link_name: Box<str>,
    pub(super) old: u64,
}

/// One migration, ready to be committed.
pub(super) struct Move {
    fill: Arc<Fill>,
    old_size: usize,
    new_size: usize,
    pub(super) moved: Moved,
}

/// A variable that got new storage.
#[derive(Clone)]
pub(super) struct Moved {
    dylib: Dylib,
    old_link_name: Box<str>,
    new_link_name: Box<str>,
    old: u64,
    new: u64,
}

/// Leads the name of a variable to its new storage until this is dropped.
pub(super) struct Redirection {
    replacing: Weak<Replacing>,
    moved: Moved,
}

impl Redirection {
    pub(super) fn new(replacing: &Arc<Replacing>, moved: Moved) -> Redirection {
        Redirection {
            replacing: Arc::downgrade(replacing),
            moved,
        }
    }

    /// The address of the old storage.
    pub(super) fn old(&self) -> u64 {
        self.moved.old
    }
}

impl Drop for Redirection {
    fn drop(&mut self) {
        if let Some(replacing) = self.replacing.upgrade() {
            let _pass = gate::enter();
            replacing.move_back(&self.moved);
        }
    }
}

impl Move {
    /// Fills the new storage. No step may fail, and nothing may change, before this.
    pub(super) fn fill(&self) {
        let Moved { old, new, .. } = self.moved;
        let fill = &self.fill;
        fill(
            old as *const u8,
            self.old_size,
            new as *mut u8,
            self.new_size,
        );
    }
}

impl Replacing {
    /// Binds names to the new storage.
    pub(super) fn relocate(&self, moved: &Moved) {
        self.names.relocate(moved.old, moved.new);
        let dylib = moved.dylib.id();
        let (old, new) = (&moved.old_link_name, &moved.new_link_name);
        self.bound.relocate(dylib, old, new);
    }

    /// Binds names to the new storage no longer: they lead to that of the latest move before, or
    /// after, that is still in effect.
    pub(super) fn move_back(&self, moved: &Moved) {
        self.names.move_back(moved.new);
        let dylib = moved.dylib.id();
        let (old, new) = (&moved.old_link_name, &moved.new_link_name);
        self.bound.move_back(dylib, old, new);
    }

    /// The migrations of `planned`, once its data is linked.
    pub(super) fn moves(
        &self,
        module: &Module,
        planned: &Planned,
        migrations: &[Migration],
    ) -> Result<Vec<Move>, Error> {
        let summary = module.readers.summary();
        let mut moves = Vec::new();
        for migrating in &planned.migrating {
            let info = &summary.symbols[migrating.symbol.index()];
            let new_link_name = &planned.plan.import(migrating.symbol).name;
            let wanted = migrations.iter().find(|wanted| wanted.global == info.name);
            let found = self.names.find_own(&module.dylib, new_link_name);
            let old = self.layout_of(&module.dylib, &migrating.old_link_name)?;
            let (Some(wanted), Some(Definition::Address(new)), Some(old)) = (wanted, found, old)
            else {
                return Err(self.no_migration(module, &info.name));
            };
            let new_size = module.readers.faithful()?.layout(migrating.symbol).size;
            moves.push(Move {
                fill: Arc::clone(&wanted.fill),
                old_size: old.size as usize,
                new_size: new_size as usize,
                moved: Moved {
                    dylib: module.dylib.clone(),
                    old_link_name: migrating.old_link_name.clone(),
                    new_link_name: new_link_name.clone(),
                    old: migrating.old,
                    new,
                },
            });
        }
        Ok(moves)
    }

    fn no_migration(&self, module: &Module, global: &str) -> Error {
        Error::from(ReplaceError::Fixed {
            file: module.readers.bitcode().name().to_owned(),
            symbol: global.to_owned(),
            why: "it is to be migrated, and is no variable of a bitcode module",
        })
    }

    /// Checks that every migration is of an existing variable, and that all code that mentions it
    /// is replaced.
    pub(super) fn check_users(
        &self,
        module: &Module,
        planned: &Planned,
        migrations: &[Migration],
    ) -> Result<(), Error> {
        let summary = module.readers.summary();
        let name = |migrating: &Migrating| &summary.symbols[migrating.symbol.index()].name;
        for wanted in migrations {
            if !planned.migrating.iter().any(|m| *name(m) == wanted.global) {
                return Err(self.no_migration(module, &wanted.global));
            }
        }
        for migrating in &planned.migrating {
            let mut users = Vec::new();
            for other in self.bound.all() {
                self.users_in(&other, &migrating.old_link_name, planned, &mut users)?;
            }
            users.extend(self.objects.users(migrating.old));
            if !users.is_empty() {
                return Err(Error::from(ReplaceError::Users {
                    file: module.readers.bitcode().name().to_owned(),
                    global: name(migrating).clone(),
                    users,
                }));
            }
        }
        Ok(())
    }

    /// Adds functions and variables that mention a variable and are not replaced.
    fn users_in(
        &self,
        module: &Module,
        link_name: &str,
        planned: &Planned,
        users: &mut Vec<String>,
    ) -> Result<(), Error> {
        let plan = module.plan();
        let summary = module.readers.summary();
        let imports = plan.imports.iter();
        let Some(at) = imports
            .clone()
            .position(|import| *import.name == *link_name)
        else {
            return Ok(());
        };
        for user in module.readers.reader()?.mentions(SymbolId(at as u32))? {
            let (info, import) = (&summary.symbols[user.index()], plan.import(user));
            // A body that is not defined runs nowhere.
            if !import.defined {
                continue;
            }
            let replaced = match self.names.find_own(&module.dylib, &import.name) {
                Some(Definition::Function { id }) if info.kind == Kind::Function => {
                    planned.members.iter().any(|&(member, _)| member == id)
                }
                _ => false,
            };
            if !replaced {
                users.push(info.name.clone());
            }
        }
        Ok(())
    }
}
