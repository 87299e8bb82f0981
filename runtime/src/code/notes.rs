//! Notes of publishers to the reclaiming thread, and their delay if it falls behind.
//!
//! Publishing only puts a note, until more than [`BACKLOG`] notes of retired code are unread: then
//! the thread gets no processor, and memory grows with every version. From then on a thread that
//! publishes a change sleeps for [`TOLL`] at most, which gives the processor away. A first call is
//! never held up.

use crate::code::blocks::NewBlock;
use crate::code::holding::Retire;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};
use uruk_base::locks::Mutex;
use uruk_base::{FunctionId, VersionId};
use uruk_reclaim::{Inbox, Kind};

/// Unread notes of retired versions above which publishers wait: 25,000 publications a second leave
/// as many, two each, while the thread lets notes gather for 5 ms.
const BACKLOG: usize = 256;

/// Longest wait of a publication for the thread: 500 a second are always possible.
const TOLL: Duration = Duration::from_millis(2);

/// A note to the reclaiming thread.
pub(crate) enum Note {
    /// Code can be started from now on.
    Live(NewBlock),
    /// Nothing can start the code of this version any more.
    Retire(VersionId),
    /// A thread wants a cycle; the number says when it is done.
    Request(Kind, u64),
    /// A version took the place of another, which is kept for a while.
    Superseded(FunctionId, VersionId),
}

/// Notes that were not read yet.
#[derive(Default)]
pub(crate) struct Notes {
    pub(crate) inbox: Inbox<Note>,
    /// Whether the thread waits for a note.
    pub(crate) asleep: AtomicBool,
    pub(crate) thread: Mutex<Option<Thread>>,
    /// Whether any code was retired: then there is work for the thread.
    pub(crate) wanted: AtomicBool,
    /// Whether the thread was started. Relaxed: a hint.
    pub(crate) started: AtomicBool,
    /// Starts the thread.
    start: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Pending notes of retired code. Relaxed: a hint.
    leaving: AtomicUsize,
}

impl Notes {
    /// Notes that a piece of code can be started from now on.
    pub(crate) fn live(&self, piece: NewBlock) {
        self.inbox.push(Note::Live(piece));
    }

    /// Sets how the thread is started.
    pub(crate) fn on_work(&self, start: Box<dyn Fn() + Send + Sync>) {
        // A session has one thread.
        let _ = self.start.set(start);
    }

    /// Starts the thread, once it has work.
    pub(crate) fn start(&self) {
        if self.wanted.load(Ordering::Relaxed)
            && !self.started.load(Ordering::Relaxed)
            && let Some(start) = self.start.get()
        {
            start();
        }
    }

    /// Drops unread notes at the end, when the thread reads no more. Otherwise they would form a
    /// cycle: a note holds code, the code holds images that it was linked against, and these hold
    /// the notes.
    pub(crate) fn end(&self) {
        drop(self.inbox.take());
    }

    /// Notes that `version` took the place of another, which is kept for a while.
    pub(crate) fn superseded(&self, function: FunctionId, version: VersionId) {
        self.inbox.push(Note::Superseded(function, version));
        self.leaving.fetch_add(1, Ordering::Relaxed);
        self.wanted.store(true, Ordering::Relaxed);
        self.wake();
    }

    /// All notes that were not read yet.
    pub(crate) fn take(&self) -> Vec<Note> {
        self.leaving.store(0, Ordering::Relaxed);
        self.inbox.take()
    }

    /// Delays a thread that publishes faster than the reclaiming thread gets a processor. Not under
    /// a pass of the gate, and not while a caller waits for the publication.
    pub(super) fn pay(&self) {
        let start = Instant::now();
        while self.leaving.load(Ordering::Relaxed) > BACKLOG && start.elapsed() < TOLL {
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Wakes the thread, if it waits for notes.
    pub(crate) fn wake(&self) {
        if self.asleep.swap(false, Ordering::Relaxed) {
            self.stop();
        }
    }

    /// Wakes the thread, whatever it waits for.
    pub(crate) fn stop(&self) {
        let thread = self.thread.lock();
        if let Some(thread) = &*thread {
            thread.unpark();
        }
    }
}

impl Retire for Notes {
    fn retire(&self, version: VersionId) {
        self.inbox.push(Note::Retire(version));
        self.leaving.fetch_add(1, Ordering::Relaxed);
        self.wanted.store(true, Ordering::Relaxed);
        self.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::{Duration, Instant};

    use uruk_base::VersionId;

    use super::{BACKLOG, Notes, TOLL};
    use crate::code::holding::Retire;
    use crate::fork::gate;

    #[test]
    fn who_publishes_pays_while_notes_are_not_read() {
        let _pass = gate::enter();
        let notes = Notes::default();
        let paid = || {
            let start = Instant::now();
            notes.pay();
            start.elapsed()
        };
        for number in 0..BACKLOG as u64 {
            notes.retire(VersionId(number));
        }
        // The least of some: others run here, too.
        let least = (0..20).map(|_| paid()).min();
        assert!(least < Some(TOLL), "within the backlog: {least:?}");
        notes.retire(VersionId(0));
        let paid_beyond = paid();
        assert!(paid_beyond >= TOLL, "beyond it: {paid_beyond:?}");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _pass = gate::enter();
                std::thread::sleep(Duration::from_micros(100));
                assert_eq!(notes.take().len(), BACKLOG + 1);
            });
            while notes.leaving.load(Ordering::Relaxed) > 0 {
                notes.pay();
            }
        });
        let least = (0..20).map(|_| paid()).min();
        assert!(least < Some(TOLL), "all read: {least:?}");
    }
}
