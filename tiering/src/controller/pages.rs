//! Records by function number, in pages made when first used: numbers are small and dense, but one
//! large number must not cost the memory of all below it. A page is freed with the last of its
//! records: numbers of removed functions are not all reused.

use uruk_base::allocated::{of_block, of_slice, of_vec};

use crate::activity::Activity;
use crate::ids::FunctionId;

const PAGE: usize = 256;

#[derive(Debug)]
pub(super) struct Pages {
    pages: Vec<Option<Box<Page>>>,
    limit: u32,
}

#[derive(Debug)]
struct Page {
    records: Box<[Activity]>,
    /// The records that exist, one bit each.
    made: [u64; PAGE / 64],
}

impl Default for Page {
    fn default() -> Page {
        Page {
            records: vec![Activity::default(); PAGE].into(),
            made: [0; PAGE / 64],
        }
    }
}

impl Pages {
    /// An empty table for functions with numbers below `limit`.
    pub(super) fn new(limit: u32) -> Pages {
        Pages {
            pages: Vec::new(),
            limit,
        }
    }

    /// Bytes that the allocator took for the pages.
    pub(super) fn bytes(&self) -> usize {
        let pages = self.pages.iter().flatten();
        let pages = pages.map(|page| of_block(size_of::<Page>()) + of_slice(&page.records));
        of_vec(&self.pages) + pages.sum::<usize>()
    }

    pub(super) fn get(&self, function: FunctionId) -> Option<&Activity> {
        let index = function.0 as usize;
        let page = self.pages.get(index / PAGE)?.as_ref()?;
        page.records.get(index % PAGE)
    }

    pub(super) fn get_mut(&mut self, function: FunctionId) -> Option<&mut Activity> {
        let index = function.0 as usize;
        let page = self.pages.get_mut(index / PAGE)?.as_mut()?;
        page.records.get_mut(index % PAGE)
    }

    /// The record, made if needed; `None` beyond the limit.
    pub(super) fn make(&mut self, function: FunctionId) -> Option<&mut Activity> {
        if function.0 >= self.limit {
            return None;
        }
        let index = function.0 as usize;
        if self.pages.len() <= index / PAGE {
            self.pages.resize_with(index / PAGE + 1, || None);
        }
        let page = self.pages.get_mut(index / PAGE)?;
        let page = page.get_or_insert_with(Box::default);
        let at = index % PAGE;
        page.made[at / 64] |= 1 << (at % 64);
        page.records.get_mut(at)
    }

    /// Removes a record.
    pub(super) fn forget(&mut self, function: FunctionId) {
        let index = function.0 as usize;
        let Some(place) = self.pages.get_mut(index / PAGE) else {
            return;
        };
        let Some(page) = place else { return };
        let at = index % PAGE;
        page.made[at / 64] &= !(1 << (at % 64));
        page.records[at] = Activity::default();
        if page.made == [0; PAGE / 64] {
            *place = None;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_used_pages_are_made() {
        let mut pages = Pages::new(1 << 20);
        assert!(pages.make(FunctionId(1 << 20)).is_none());
        assert!(pages.make(FunctionId((1 << 20) - 1)).is_some());
        assert_eq!(pages.pages.iter().flatten().count(), 1);
        assert!(pages.get(FunctionId(5)).is_none());
        assert!(pages.get_mut(FunctionId((1 << 20) - 1)).is_some());
    }

    #[test]
    fn a_page_goes_with_its_last_record() {
        let mut pages = Pages::new(1 << 20);
        for number in 0..600 {
            assert!(pages.make(FunctionId(number)).is_some());
        }
        (0..599).for_each(|number| pages.forget(FunctionId(number)));
        pages.forget(FunctionId(1 << 19));
        assert_eq!(pages.pages.iter().flatten().count(), 1);
        assert!(pages.get(FunctionId(599)).is_some());
        assert!(pages.get(FunctionId(5)).is_none());
        assert!(pages.make(FunctionId(5)).is_some());
    }
}
