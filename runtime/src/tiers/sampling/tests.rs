//! Drains that wait for one another.

use std::time::Duration;

use crate::api::jit::Jit;
use crate::fork::gate;

#[test]
fn a_drain_that_waited_is_not_older_than_the_one_before() {
    let jit = Jit::new().expect("a session");
    let session = jit.session();
    let _busy = gate::enter();
    let mut state = session.tiers.sampling.lock();
    state.source = session.open_sampler();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let _busy = gate::enter();
            session.drain_samples();
        });
        // Time for the other thread to reach the lock. If it comes later, the test shows nothing.
        std::thread::sleep(Duration::from_millis(50));
        state.told = session.events.now();
        state.clock.hurry();
        drop(state);
        waits.join().expect("time does not go back");
    });
}
