//! The table of functions, by the number of their stub, in pages: a page whose functions are all
//! removed is freed. Numbers only ever grow where addresses may be kept.
//!
//! Calls through a pointer to a removed function end with an error that has its name. The names of
//! the latest removed functions are kept for that, a bounded number of them.

use std::collections::BTreeMap;
use std::ffi::CStr;

use uruk_base::allocated::{of_block, of_vec};

use crate::code::body::Body;

const PAGE: usize = 64;

/// Number of removed functions whose names are kept; with the tree's nodes about 128 KiB.
const REMOVED: usize = 4096;

struct TablePage {
    used: usize,
    bodies: [Option<Body>; PAGE],
}

/// The table of functions; see the module.
#[derive(Default)]
pub(crate) struct FunctionTable {
    pages: Vec<Option<Box<TablePage>>>,
    /// Names of removed functions, by the number of their stub.
    removed: BTreeMap<u32, &'static CStr>,
}

impl FunctionTable {
    /// Bytes that the allocator took for the table.
    pub(crate) fn bytes(&self) -> usize {
        let pages = self.pages.iter().flatten().count();
        of_vec(&self.pages) + pages * of_block(size_of::<TablePage>())
    }

    /// The body behind a stub.
    pub(crate) fn get(&self, index: u32) -> Option<&Body> {
        let index = index as usize;
        let page = self.pages.get(index / PAGE)?.as_ref()?;
        page.bodies[index % PAGE].as_ref()
    }

    /// The display name of a stub, also of a function removed lately.
    pub(crate) fn name(&self, index: u32) -> Option<&'static CStr> {
        let removed = || self.removed.get(&index).copied();
        self.get(index).map(Body::name).or_else(removed)
    }

    /// Sets the body behind a stub; returns the old one.
    pub(crate) fn set(&mut self, index: u32, body: Body) -> Option<Body> {
        self.removed.remove(&index);
        let index = index as usize;
        if self.pages.len() <= index / PAGE {
            self.pages.resize_with(index / PAGE + 1, || None);
        }
        let page = self.pages[index / PAGE].get_or_insert_with(|| {
            Box::new(TablePage {
                used: 0,
                bodies: [const { None }; PAGE],
            })
        });
        let before = page.bodies[index % PAGE].replace(body);
        page.used += usize::from(before.is_none());
        before
    }

    /// Takes out the body behind a stub; its name stays for a while.
    pub(crate) fn take(&mut self, index: u32) -> Option<Body> {
        let (number, index) = (index, index as usize);
        let place = self.pages.get_mut(index / PAGE)?;
        let page = place.as_mut()?;
        let taken = page.bodies[index % PAGE].take()?;
        page.used -= 1;
        if page.used == 0 {
            *place = None;
        }
        self.removed.insert(number, taken.name());
        if self.removed.len() > REMOVED {
            // The lowest number is the oldest, unless its stub was used again.
            self.removed.pop_first();
        }
        Some(taken)
    }

    /// All bodies, by the number of their stub.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Body)> {
        let pages = self.pages.iter().zip(0u32..);
        pages.flat_map(|(page, number)| {
            let bodies = page.iter().flat_map(|page| page.bodies.iter().zip(0u32..));
            bodies.filter_map(move |(body, at)| Some((number * PAGE as u32 + at, body.as_ref()?)))
        })
    }
}
