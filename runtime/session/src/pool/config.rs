//! Settings of a pool.

use std::fmt;
use std::io;
use std::sync::Arc;

/// Starts a thread of that name which does that work, once.
pub type SpawnHook = Arc<dyn Fn(String, Box<dyn Fn() + Send>) -> io::Result<()> + Send + Sync>;

/// Settings of a [`Pool`](super::Pool).
#[derive(Clone)]
pub struct PoolConfig {
    /// The number of threads that run tasks; 0 runs them on the threads that start them or wait for
    /// them.
    pub jobs: usize,
    /// Maximal depth of nested waits on one stack that still help.
    pub help_depth: usize,
    /// Whether waiting threads that are not workers help. Those of a guest program should not: a
    /// task would run with its signals and on its stack. Without workers they always do.
    pub help_outside: bool,
    /// Stack of each worker, in bytes, unless there is a hook.
    pub stack_size: usize,
    /// Starts workers instead of `std::thread`: with signals blocked, for instance.
    pub spawn: Option<SpawnHook>,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            jobs: std::thread::available_parallelism().map_or(1, usize::from),
            help_depth: 32,
            help_outside: true,
            stack_size: 8 << 20,
            spawn: None,
        }
    }
}

impl fmt::Debug for PoolConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolConfig")
            .field("jobs", &self.jobs)
            .field("help_depth", &self.help_depth)
            .field("help_outside", &self.help_outside)
            .field("stack_size", &self.stack_size)
            .finish_non_exhaustive()
    }
}
