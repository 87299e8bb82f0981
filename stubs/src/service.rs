//! The service's side of first calls: taking requests and waiting for them.

use std::time::Duration;

use uruk_base::FunctionId;

use crate::table::StubTable;

impl StubTable {
    /// The next function that callers wait for. Racing first calls give one request. The thread
    /// that takes it must [publish](StubTable::publish) or [fail](StubTable::fail) it. Any number
    /// of threads may take requests; they must have all signals blocked.
    pub fn next_request(&self) -> Option<FunctionId> {
        let shared = self.shared();
        shared.requests.next(&shared.cells)
    }

    /// Like [`StubTable::next_request`]; waits for one, for at most `timeout`.
    /// `None` also once the service is [stopped](StubTable::stop_service).
    pub fn wait_request(&self, timeout: Option<Duration>) -> Option<FunctionId> {
        self.wait_request_on(timeout, None)
    }

    /// Like [`StubTable::wait_request`], on a thread that the caller of this function has bound to
    /// `processor` (the kernel's number). A guest there wakes this thread before others, so no
    /// other processor has to be woken.
    pub fn wait_request_on(
        &self,
        timeout: Option<Duration>,
        processor: Option<u32>,
    ) -> Option<FunctionId> {
        let shared = self.shared();
        shared.requests.wait(&shared.cells, timeout, processor)
    }

    /// The processor of the caller that last woke a thread, if it is known: a hint for later calls.
    pub fn last_caller(&self) -> Option<u32> {
        self.shared().requests.caller()
    }

    /// The next request, also while the service is stopped; does not wait.
    pub fn take_request(&self) -> Option<FunctionId> {
        let shared = self.shared();
        shared.requests.next(&shared.cells)
    }

    /// Makes all present and later calls of [`StubTable::wait_request`] return `None`, until
    /// [`StubTable::start_service`]. Requests stay.
    pub fn stop_service(&self) {
        self.shared().requests.stop();
    }

    /// Sets whether there is no thread that takes requests. Then waiting and later calls of functions
    /// without code continue at the failure handler. The functions do not fail: once the service is
    /// there, calls ask for code again.
    pub fn set_unserved(&self, unserved: bool) {
        self.shared().requests.set_unserved(unserved);
        if unserved {
            self.all()
                .for_each(|function| self.shared().end_waits(function));
        }
    }

    /// Ends [`StubTable::stop_service`]; a new table is started.
    pub fn start_service(&self) {
        self.shared().requests.start();
    }
}
