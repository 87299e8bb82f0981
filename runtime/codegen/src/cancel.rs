//! Cancellation of a compile, as plain data.
//!
//! The caller of a compile keeps a clone of its token
//! ([`Compile::cancelled_by`](crate::Compile::cancelled_by)), and may
//! [cancel](Cancellation::cancel) it from any thread. The compile looks at the token between its
//! stages: before each body that is read or copied, before each round of simplification or
//! optimization, and before emission. In large units it also looks before each pass of LLVM
//! (`gate`). It then ends with [`CodegenError::Cancelled`](crate::CodegenError::Cancelled). Work
//! between two looks runs to its end.
//!
//! Invariants:
//! - A token that is cancelled stays so.
//! - A look that finds the token cancelled changes nothing that outlives the compile: the reader,
//!   its library and its facts are as they were before the stage.
//!
//! | field | written by | read by | order |
//! |---|---|---|---|
//! | `cancelled` | `cancel`, `look` | looks, `is_cancelled` | relaxed: it publishes no other data |
//! | `looks` | looks | `looks` | relaxed: a count |

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Token that ends compiles whose result is not needed any more; see the module. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Cancellation(Arc<TokenState>);

#[derive(Debug, Default)]
struct TokenState {
    cancelled: AtomicBool,
    looks: AtomicU64,
    /// The look that cancels; 0 for none.
    last: u64,
}

impl Cancellation {
    /// A token that is not cancelled.
    #[must_use]
    pub fn new() -> Cancellation {
        Cancellation::default()
    }

    /// One that look number `look` finds cancelled, counted from 1: so a test can end a
    /// compile at each of its stages.
    #[must_use]
    pub fn at_look(look: u64) -> Cancellation {
        Cancellation(Arc::new(TokenState {
            last: look,
            ..TokenState::default()
        }))
    }

    /// Cancels the compile: its result is not needed.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Relaxed);
    }

    /// True once it was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Relaxed)
    }

    /// Number of looks at the token.
    #[must_use]
    pub fn looks(&self) -> u64 {
        self.0.looks.load(Ordering::Relaxed)
    }

    /// True if they are clones of each other.
    #[must_use]
    pub fn is(&self, other: &Cancellation) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// True if the compile is to end here.
    pub(crate) fn look(&self) -> bool {
        let look = self.0.looks.fetch_add(1, Ordering::Relaxed) + 1;
        if look == self.0.last {
            self.cancel();
        }
        self.is_cancelled()
    }
}
