//! Functions whose stub may be referenced by something that outlives them: by code or data that was
//! linked against it, or by the host, which was given its address. Other stubs are handed out again
//! once their function was removed and no handle of it is left ([`recycle`](crate::code::recycle)).
//!
//! # Invariants
//! - A function is noted before its address, or its slot's, leaves the library, or is written into
//!   code or data. A thread under a pass notes it under the pass under which it found it. A thread
//!   without one looks again afterwards whether the name still means it ([`KnownFunctions::note`]).
//! - A bit is never cleared: a known stub is not given to another function.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use uruk_base::FunctionId;

/// Functions of a page: 8 KiB.
const PAGE: usize = 1 << 16;

type KnownPage = OnceLock<Box<[AtomicU64]>>;

/// The known functions; see the module.
pub(crate) struct KnownFunctions {
    all: AtomicBool,
    pages: Box<[KnownPage]>,
}

impl KnownFunctions {
    /// For functions with indexes below `limit`.
    pub(crate) fn new(limit: usize) -> KnownFunctions {
        let pages = limit.div_ceil(PAGE);
        KnownFunctions {
            all: AtomicBool::new(false),
            pages: (0..pages).map(|_| OnceLock::new()).collect(),
        }
    }

    /// Notes a function; returns whether it was not noted before.
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
        // Partner: the fence in `is_known`. Either that thread sees the bit, or this one sees that
        // the name is gone.
        fence(Ordering::SeqCst);
        before & bit == 0
    }

    /// Notes all functions, now and later.
    pub(super) fn note_all(&self) {
        self.all.store(true, Ordering::SeqCst);
    }

    /// Whether a function whose names are gone may still be referenced.
    pub(crate) fn is_known(&self, id: FunctionId) -> bool {
        fence(Ordering::SeqCst);
        let index = id.index() as usize;
        let page = self.pages.get(index / PAGE).and_then(OnceLock::get);
        let word = page.map(|page| page[index % PAGE / 64].load(Ordering::Relaxed));
        self.all.load(Ordering::Relaxed) || word.is_some_and(|word| word >> (index % 64) & 1 != 0)
    }
}
