//! Records by function number, in pages made when first used: numbers are small and
//! dense, but one large number must not cost the memory of all below it.

use crate::activity::Activity;
use crate::ids::FunctionId;

const PAGE: usize = 256;

#[derive(Debug)]
pub(super) struct Pages {
    pages: Vec<Option<Box<[Activity]>>>,
    limit: u32,
}

impl Pages {
    /// For functions with numbers below `limit`.
    pub(super) fn new(limit: u32) -> Pages {
        Pages {
            pages: Vec::new(),
            limit,
        }
    }

    pub(super) fn get(&self, function: FunctionId) -> Option<&Activity> {
        let index = function.0 as usize;
        self.pages.get(index / PAGE)?.as_ref()?.get(index % PAGE)
    }

    pub(super) fn get_mut(&mut self, function: FunctionId) -> Option<&mut Activity> {
        let index = function.0 as usize;
        let page = self.pages.get_mut(index / PAGE)?.as_mut()?;
        page.get_mut(index % PAGE)
    }

    /// The record, made if need be; `None` beyond the limit.
    pub(super) fn make(&mut self, function: FunctionId) -> Option<&mut Activity> {
        if function.0 >= self.limit {
            return None;
        }
        let index = function.0 as usize;
        if self.pages.len() <= index / PAGE {
            self.pages.resize_with(index / PAGE + 1, || None);
        }
        let page = self.pages.get_mut(index / PAGE)?;
        page.get_or_insert_with(|| vec![Activity::default(); PAGE].into())
            .get_mut(index % PAGE)
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
}
