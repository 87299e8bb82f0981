//! Resolves names to addresses, and addresses to bodies.

use std::ffi::CStr;

use uruk_base::FunctionId;
use uruk_heap::Pool;
use uruk_link::{Need, Resolved};
use uruk_session::Dylib;

use super::Core;
use crate::fork::gate;
use crate::host::process::is_code;
use crate::host::tls;
use crate::load::names::Definition;
use crate::version::bodies::Extent;

impl Core {
    /// Slot address minus stub address, the same for every function.
    pub(crate) fn slot_distance(&self) -> u64 {
        i64::from(self.heap.stub_region().distance()) as u64
    }

    /// Resolves how code in `dylib` reaches `name`.
    pub(crate) fn resolve(&self, dylib: &Dylib, name: &str, need: Need) -> Option<Resolved> {
        self.resolve_as(self.names.find(dylib, name), name, need)
    }

    /// Resolves how code reaches `name`, whose meaning is `found`.
    pub(crate) fn resolve_as(
        &self,
        meaning: Option<Definition>,
        name: &str,
        need: Need,
    ) -> Option<Resolved> {
        match meaning {
            Some(Definition::Function { id }) => Some(self.resolved_stub(id)),
            Some(Definition::Tls { module, offset }) => Some(Resolved {
                static_tls: tls::fixed(module, offset),
                ..Resolved::thread_local(module, offset)
            }),
            Some(Definition::Address(address)) if !need.thread_local => {
                self.reclaim.stacks.note_import(name);
                Some(Resolved {
                    function: need.short && !self.is_in_reach(address) && is_code(address),
                    ..Resolved::at(address)
                })
            }
            _ if need.thread_local => {
                let process = self.process.read();
                let found = process.find_tls(name)?;
                Some(Resolved {
                    static_tls: found.fixed,
                    ..Resolved::thread_local(found.module, found.offset)
                })
            }
            _ => None,
        }
    }

    /// How code reaches a function; it counts as linked against from then on.
    pub(crate) fn resolved_stub(&self, id: FunctionId) -> Resolved {
        self.names.linked.note(id);
        self.names.known.note(id);
        Resolved::stub(self.stubs.stub_address(id), self.stubs.slot_address(id))
    }

    /// The address of a function for the host; the function is known from then on.
    pub(crate) fn given_stub(&self, id: FunctionId) -> u64 {
        self.names.known.note(id);
        self.stubs.stub_address(id).0
    }

    /// The address of a function at which a call under way goes on.
    pub(crate) fn passed_stub(&self, id: FunctionId) -> u64 {
        self.names.passed.note(id);
        self.stubs.stub_address(id).0
    }

    /// Whether distances of 32 bits reach an address from all places of code and data.
    fn is_in_reach(&self, address: u64) -> bool {
        let pools = [Pool::Code, Pool::ReadOnly, Pool::ReadWrite];
        let mut ranges = pools.iter().map(|&pool| self.heap.pool_range(pool));
        ranges.all(|range| {
            let furthest = range
                .start
                .abs_diff(address)
                .max(range.end.abs_diff(address));
            furthest < 1 << 31
        })
    }

    /// The address of a symbol `dylib` defines, for `dlsym` and the library.
    pub(crate) fn address_of(&self, dylib: &Dylib, name: &str) -> Option<u64> {
        self.address_of_meaning(self.names.find(dylib, name)?)
    }

    /// The present address of the definition that the session knows by `address`, for the calling
    /// thread. Takes no lock for functions, nor if no data was moved.
    pub(crate) fn address_now(&self, address: u64) -> Option<u64> {
        match self.names.is_final(address) {
            true => {
                self.names.give(address);
                Some(address)
            }
            false => {
                let _pass = gate::enter();
                self.address_of_meaning(self.names.meaning(address))
            }
        }
    }

    pub(crate) fn address_of_meaning(&self, meaning: Definition) -> Option<u64> {
        match meaning {
            Definition::Function { id } => Some(self.given_stub(id)),
            Definition::Address(address) => Some(address),
            Definition::Tls { module, offset } => tls::address(module, offset),
        }
    }

    /// The function whose code or stub holds `pc`.
    pub(crate) fn name_at(&self, pc: u64) -> Option<String> {
        let name = match self.stubs.function_at(pc) {
            Some(id) => self.display_name_of(id)?,
            None => self.function_name_at(pc)?.0,
        };
        Some(name.to_string_lossy().into_owned())
    }

    /// File and line of the instruction at `pc`, where the session keeps lines.
    pub(crate) fn source_at(&self, pc: u64) -> Option<(String, u32)> {
        let (_, start) = self.function_name_at(pc)?;
        self.tools.source_of(start, pc)
    }

    /// Bytes that the allocator took for the tables of functions and of their bodies.
    pub(crate) fn bytes_of_functions(&self) -> usize {
        let functions = self.functions.read();
        let functions = functions.bytes();
        let bodies = self.bodies.read();
        functions + bodies.bytes()
    }

    /// Name and start of the body that holds `pc`.
    pub(crate) fn function_name_at(&self, pc: u64) -> Option<(&'static CStr, u64)> {
        let bodies = self.bodies.read();
        bodies.at(pc).map(|(start, _, name)| (name, start))
    }

    /// All bodies: start, end and name.
    pub(crate) fn bodies(&self) -> Vec<(u64, u64, &'static CStr)> {
        let bodies = self.bodies.read();
        bodies.iter().collect()
    }

    /// Removes the bodies in these ranges.
    pub(crate) fn remove_bodies(&self, ranges: impl IntoIterator<Item = std::ops::Range<u64>>) {
        let mut bodies = self.bodies.write();
        ranges.into_iter().for_each(|range| bodies.remove(range));
    }

    /// Records the place of a body.
    pub(crate) fn add_body(&self, start: u64, end: u64, name: &'static CStr) {
        self.add_bodies([(start, end, name)]);
    }

    /// Records the places of bodies.
    pub(crate) fn add_bodies(&self, some: impl IntoIterator<Item = Extent>) {
        let mut bodies = self.bodies.write();
        bodies.add(some);
    }
}
