//! The table of functions, by the number of their stub, in pages: one whose functions are all
//! removed goes. Numbers only ever grow where addresses may be kept.

use super::Body;

const PAGE: usize = 64;

struct Page {
    used: usize,
    bodies: [Option<Body>; PAGE],
}

/// See the module.
#[derive(Default)]
pub(crate) struct FunctionTable {
    pages: Vec<Option<Box<Page>>>,
}

impl FunctionTable {
    /// What a stub stands for.
    pub(crate) fn get(&self, index: u32) -> Option<&Body> {
        let index = index as usize;
        let page = self.pages.get(index / PAGE)?.as_ref()?;
        page.bodies[index % PAGE].as_ref()
    }

    /// Records what a stub stands for; what it was before.
    pub(super) fn set(&mut self, index: u32, body: Body) -> Option<Body> {
        let index = index as usize;
        if self.pages.len() <= index / PAGE {
            self.pages.resize_with(index / PAGE + 1, || None);
        }
        let page = self.pages[index / PAGE].get_or_insert_with(|| {
            Box::new(Page {
                used: 0,
                bodies: [const { None }; PAGE],
            })
        });
        let before = page.bodies[index % PAGE].replace(body);
        page.used += usize::from(before.is_none());
        before
    }

    /// Takes out what a stub stood for.
    pub(crate) fn take(&mut self, index: u32) -> Option<Body> {
        let index = index as usize;
        let place = self.pages.get_mut(index / PAGE)?;
        let page = place.as_mut()?;
        let taken = page.bodies[index % PAGE].take()?;
        page.used -= 1;
        if page.used == 0 {
            *place = None;
        }
        Some(taken)
    }

    /// All that stubs stand for.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Body)> {
        let pages = self.pages.iter().zip(0u32..);
        pages.flat_map(|(page, number)| {
            let bodies = page.iter().flat_map(|page| page.bodies.iter().zip(0u32..));
            bodies.filter_map(move |(body, at)| Some((number * PAGE as u32 + at, body.as_ref()?)))
        })
    }
}
