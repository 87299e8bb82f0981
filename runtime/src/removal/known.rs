//! Functions whose stub something may know that outlives them: code or data that was linked against
//! it, or the host, which was given its address. A stub that is not among them is handed out again
//! once its function was removed and no handle of it is left ([`recycle`](super::recycle)).
//!
//! # Invariants
//! - A function is noted before its address, or its slot's, leaves the library, or is written into
//!   code or data. A thread under a pass notes it under the pass under which it found it. A thread
//!   without one looks again afterwards whether the name still means it ([`Known::note`]).
//! - A bit is never cleared: a stub that is known is not another function's.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use uruk_base::FunctionId;

/// Functions of a page: 8 KiB.
const PAGE: usize = 1 << 16;

type Page = OnceLock<Box<[AtomicU64]>>;

/// See the module.
pub(crate) struct Known {
    all: AtomicBool,
    pages: Box<[Page]>,
}

impl Known {
    /// For functions with indexes below `limit`.
    pub(crate) fn new(limit: usize) -> Known {
        let pages = limit.div_ceil(PAGE);
        Known {
            all: AtomicBool::new(false),
            pages: (0..pages).map(|_| OnceLock::new()).collect(),
        }
    }

    /// Notes a function; whether it was not noted before.
    pub(crate) fn note(&self, id: FunctionId) -> bool {
        let index = id.index() as usize;
        let Some(page) = self.pages.get(index / PAGE) else {
            return false;
        };
        let page = page.get_or_init(|| (0..PAGE / 64).map(|_| AtomicU64::new(0)).collect());
        let (word, bit) = (&page[index % PAGE / 64], 1 << (index % 64));
        // Relaxed: a set bit stays.
        if word.load(Ordering::Relaxed) & bit != 0 {
            return false;
        }
        let before = word.fetch_or(bit, Ordering::Relaxed);
        // Partner: the fence in `is_known`. The one thread sees the bit, or the other one sees that the
        // name is gone.
        fence(Ordering::SeqCst);
        before & bit == 0
    }

    /// Notes all functions, now and later.
    pub(crate) fn note_all(&self) {
        self.all.store(true, Ordering::SeqCst);
    }

    /// Whether something may know a function whose names are gone.
    pub(crate) fn is_known(&self, id: FunctionId) -> bool {
        fence(Ordering::SeqCst);
        let index = id.index() as usize;
        let page = self.pages.get(index / PAGE).and_then(OnceLock::get);
        let word = page.map(|page| page[index % PAGE / 64].load(Ordering::Relaxed));
        self.all.load(Ordering::Relaxed) || word.is_some_and(|word| word >> (index % 64) & 1 != 0)
    }
}
