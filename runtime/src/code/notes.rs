//! Notes of publishers to the reclaiming thread, and their delay if it falls behind.
//!
//! Publishing only puts a note, until more than [`BACKLOG`] notes of retired code are unread: then
//! the thread gets no processor, and memory grows with every version. From then on a thread that
//! publishes a change sleeps for [`TOLL`] at most, which gives the processor away. A first call is
//! never held up.

use crate::code::blocks::NewBlock;
use crate::code::holding::Retire;
use crate::fork::gate;
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
    inbox: Inbox<Note>,
    /// Whether the thread waits for a note.
    asleep: AtomicBool,
    thread: Mutex<Option<Thread>>,
    /// Whether any code was retired: then there is work for the thread.
    wanted: AtomicBool,
    /// Whether the thread was started. Relaxed: a hint.
    started: AtomicBool,
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

    /// Whether there is work for the thread, or ever was.
    pub(crate) fn has_work(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Whether the thread was started.
    pub(super) fn is_started(&self) -> bool {
        self.started.load(Ordering::Relaxed)
    }

    /// Whether the caller is to start the thread now: it has work, and was not started.
    pub(crate) fn begin_start(&self) -> bool {
        self.has_work() && !self.started.swap(true, Ordering::Relaxed)
    }

    /// Notes that the thread could not be started.
    pub(crate) fn fail_start(&self) {
        self.started.store(false, Ordering::Relaxed);
    }

    /// Lets the caller do the thread's work: none is started.
    #[cfg(test)]
    pub(crate) fn work_here(&self) {
        self.started.store(true, Ordering::Relaxed);
    }

    /// Names the calling thread as the one to wake. Under a pass.
    pub(crate) fn serve_here(&self) {
        *self.thread.lock() = Some(std::thread::current());
    }

    /// Resets the thread's state in the child of a fork, where it does not exist.
    pub(crate) fn after_fork_child(&self) {
        *self.thread.lock() = None;
        self.asleep.store(false, Ordering::Relaxed);
        self.started.store(false, Ordering::Relaxed);
    }

    /// Puts the request for a cycle; returns its number.
    pub(crate) fn request(&self, kind: Kind) -> u64 {
        let ticket = self.inbox.request(|ticket| Note::Request(kind, ticket));
        self.wanted.store(true, Ordering::Relaxed);
        ticket
    }

    /// Number of cycles that were requested.
    pub(crate) fn tickets(&self) -> u64 {
        self.inbox.tickets()
    }

    /// Lets the calling thread sleep by `sleep`, unless there is a note or `is_over`. A thread that
    /// puts a note, or ends the session, takes the lock of the notes before it reads `asleep`.
    /// Either it comes first, and is seen here, or it sees `asleep`.
    pub(crate) fn sleep_unless(&self, is_over: impl Fn() -> bool, sleep: impl FnOnce()) {
        self.asleep.store(true, Ordering::Relaxed);
        let nothing = {
            let _pass = gate::enter();
            self.inbox.is_empty() && !is_over()
        };
        if nothing {
            sleep();
        }
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Wakes the thread at the end of the session. Under the lock of the notes: a thread that goes to
    /// sleep has seen the end, or is seen asleep.
    pub(crate) fn wake_at_end(&self) {
        let _ = self.inbox.is_empty();
        self.wake();
    }

    /// Starts the thread, once it has work.
    pub(crate) fn start(&self) {
        if self.has_work()
            && !self.is_started()
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
