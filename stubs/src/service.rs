//! The service's side of first calls: what callers ask for, and waiting for it.

use std::time::Duration;

use uruk_base::FunctionId;

use crate::table::StubTable;

impl StubTable {
    /// The next function that callers wait for. Each first call gives one
    /// request, however many callers race; who takes it must
    /// [publish](StubTable::publish) or [fail](StubTable::fail) it. Any number
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

    /// As [`StubTable::wait_request`], on a thread that keeps to `processor` (the kernel's number),
    /// as whoever calls this sees to: a caller there wakes this thread before others, and no
    /// other processor has to be woken.
    pub fn wait_request_on(
        &self,
        timeout: Option<Duration>,
        processor: Option<u32>,
    ) -> Option<FunctionId> {
        let shared = self.shared();
        shared.requests.wait(&shared.cells, timeout, processor)
    }

    /// The processor of the caller that woke a thread last, if it is known: a hint to where
    /// the next calls come from.
    pub fn last_caller(&self) -> Option<u32> {
        self.shared().requests.caller()
    }

    /// Makes [`StubTable::wait_request`] return `None`, on all threads that are
    /// in it or come to it, until [`StubTable::start_service`]. Requests stay.
    pub fn stop_service(&self) {
        self.shared().requests.stop();
    }

    /// Takes back [`StubTable::stop_service`]; as a table is when it is made.
    pub fn start_service(&self) {
        self.shared().requests.start();
    }
}
