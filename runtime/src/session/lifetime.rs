//! Starts and ends the threads of a session, and keeps it usable on both sides of a fork.
//!
//! # Why
//! The end of a session, or of a process that uses the library, cancels background compiles and
//! waits for those under way (10 s at most): LLVM's static objects are destroyed at exit.

use std::sync::Arc;

use tracing::{error, warn};

use uruk_session::Behalf;

use super::Session;
use crate::error::Error;
use crate::fork::hands::EmbedderThreads;
use crate::fork::thread::serving::Serving;
use crate::fork::threads;
use crate::fork::{self, ForkMember, gate};
use crate::host::listed;
use crate::host::room;
use crate::speculation::work;
use crate::tiers::background;
use crate::tuning;
use crate::version::calls;

/// Its drop waits until the states of embedders are dropped. The last thread that holds the session
/// drops them, or hands them to a thread for code of embedders.
pub(crate) struct SessionEnd {
    serving: Arc<Serving>,
    hands: Arc<EmbedderThreads>,
}

impl SessionEnd {
    pub(crate) fn of(session: &Session) -> Self {
        Self {
            serving: Arc::clone(&session.serving),
            hands: Arc::clone(&session.hands),
        }
    }
}

impl Drop for SessionEnd {
    fn drop(&mut self) {
        // The last handle may have been dropped by a thread that serves the session.
        if !threads::is_ours() {
            self.serving.wait(fork::LAST_COMPILES);
            self.hands.wait_for_drops(fork::LAST_COMPILES);
        }
    }
}

impl Session {
    /// Starts the workers, and registers the session for forks ([`fork::join`]). Under a pass, held
    /// since before the session was made.
    pub(crate) fn start(self: &Arc<Self>) -> Result<(), Error> {
        let this = Arc::downgrade(self);
        self.announce();
        let session = this.clone();
        self.notes.on_work(Box::new(move || {
            if let Some(session) = session.upgrade() {
                session.start_reclaim();
            }
        }));
        fork::join(this);
        calls::spawn(self, room::threads(self.jobs))?;
        work::start(self);
        background::start(self)?;
        tuning::start(self)
    }

    /// Ends the workers, and waits for compiles under way: a process that ends next destroys LLVM's
    /// static objects.
    pub(crate) fn stop(&self) {
        self.set_stopping();
        self.stubs.stop_service();
        {
            let _pass = gate::enter();
            self.hands.stop();
            self.tiers.stop();
            self.tuning.stop();
            self.speculation.close();
            self.stop_reclaim();
        }
        // A listener on a worker may have dropped the last handle.
        if !threads::is_ours() {
            gate::settle(fork::LAST_COMPILES);
        }
    }

    /// Makes libraries that were loaded since the last call list the images in `dl_iterate_phdr`,
    /// if an embedder enabled that. Without a pass.
    pub(crate) fn show_list(&self) {
        if self.lists_images() && !self.is_program() {
            listed::attend();
        }
    }
}

impl Session {
    /// Starts the threads that no call waits for, in a child. Without one of them functions stay at
    /// their tiers.
    fn restart_background(self: &Arc<Self>) {
        if self.service.cause().is_some() {
            return;
        }
        let started = [background::start(self), tuning::start(self)];
        for cause in started.into_iter().filter_map(Result::err) {
            let told = move || warn!(%cause, "no background threads after fork");
            self.names.session().pool().put_off(told);
        }
    }
}

impl ForkMember for Session {
    fn wind_down(&self) {
        self.tiers.pause(true);
        self.tiers.drop_jobs();
        self.speculation.close();
    }

    fn waits_at_exit(&self) -> bool {
        !self.is_program()
    }

    fn interrupt(&self) {
        self.interrupt_jobs();
        self.tuning.interrupt();
        self.speculation.interrupt();
    }

    fn has_tasks(&self) -> bool {
        self.names.session().pool().runs_elsewhere()
    }

    fn before_fork(&self) {
        // Units of embedders may be running, and one of them may wait for the thread that forks.
        self.names.session().pool().quiesce_but_for_tasks();
        self.heap.before_fork();
    }

    fn before_fork_in_child(&self) -> bool {
        self.names.session().pool().quiesce_in_child() && self.heap.try_before_fork()
    }

    fn after_fork_parent(&self) {
        self.heap.after_fork_parent();
        self.reclaim.after_fork_parent();
        self.names.session().pool().resume();
    }

    fn after_fork_child(&self) {
        // Inherited code runs on even when the kernel refuses fresh memory; the next
        // compile then fails with the heap's own error.
        let fresh = self.heap.after_fork_child();
        self.serving.after_fork_child();
        self.stubs.after_fork_child();
        self.service.after_fork_child();
        let session = self.names.session();
        session.pool().after_fork_child();
        session.give_up_lost();
        if let Err(cause) = fresh {
            // A message is code of embedders, too: a subscriber of `tracing`.
            let told = move || error!(%cause, "no fresh code memory after fork");
            session.pool().put_off(told);
        }
        self.tiers.after_fork_child();
        if let Some(held) = self.tuning.after_fork_child() {
            self.tiers.control().controller.release(held);
        }
        self.continuations.after_fork_child();
        self.speculation.after_fork_child();
        self.reclaim.after_fork_child();
        self.replacing.after_fork_child();
        self.host.after_fork_child();
        self.events.after_fork_child();
        if let Err(cause) = self.tools.after_fork_child() {
            let told = move || warn!(%cause, "no perf map in the child of a fork");
            session.pool().put_off(told);
        }
    }

    fn restart(self: Arc<Self>) {
        // One worker: most children call `exec` soon. It enters when the gate is open.
        if let Err(cause) = calls::spawn(&self, 1) {
            // Each first call tries again.
            self.service.lose(&self.stubs, cause);
        }
        self.restart_background();
        let pool = self.names.session().pool();
        let stuck = self.hands.restart();
        if !stuck.is_empty() {
            pool.put_off(move || drop(stuck));
        }
        if pool.has_waiting() {
            // The thread that forks may hold locks of the program, so it runs no code of embedders.
            // Without a thread for them the tasks stay for the next lookup that waits.
            let pool = pool.clone();
            // They are no part of what the forking thread does.
            let _working = Behalf::OWN.enter();
            self.hands.start_late(move || pool.run_waiting());
        }
    }

    fn serve(self: Arc<Self>) -> bool {
        if self.is_stopping() || self.service.cause().is_none() {
            return true;
        }
        let served = calls::spawn(&self, 1).is_ok();
        if served {
            self.service.regain(&self.stubs);
            self.restart_background();
        }
        served
    }

    fn finish_code(self: Arc<Self>) {
        self.compile_rest();
    }

    fn fail_requests(&self) {
        let _pass = gate::enter();
        while let Some(id) = self.stubs.take_request() {
            self.fail(id, &self.cancelled(id));
        }
    }

    fn end_cycles(&self) {
        let _pass = gate::enter();
        self.continuations.end_times();
    }

    fn end_threads(&self) {
        if let Some(before) = self.before_end.get() {
            before(self);
        }
        self.stop();
        let _pass = gate::enter();
        self.tiers.sampling.close();
    }

    fn note_sharing(&self) {
        self.keep_code("the program made a process that shares its memory");
    }
}
