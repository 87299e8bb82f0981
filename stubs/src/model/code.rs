//! Code under loom: a thread that gets the address of code sees all its bytes.
//!
//! On the machine the order of stores and of instruction fetch ensures that. For readers of code as
//! data, and for the compiler, it is the release of each store into a slot or a kept word, and the
//! acquire of the reader. Threads begin before the code is written, so that only these order their
//! reads after the writes.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::{
    bound, bound_sleepers, call, close, code, function, model, new, open, slot, start, table,
};
use crate::gate::Target;
use crate::guest::Outcome;
use crate::shared::Shared;
use crate::state::Kind;
use uruk_base::FunctionId;

/// The bytes of code at a few entries. Loom reports a thread that executes bytes without seeing the
/// write.
struct Memory {
    shared: Arc<Shared>,
    f: FunctionId,
    old: UnsafeCell<()>,
    new: UnsafeCell<()>,
}

// SAFETY: loom checks all accesses to the cells.
unsafe impl Sync for Memory {}
// SAFETY: as above.
unsafe impl Send for Memory {}

impl Memory {
    fn of(shared: Arc<Shared>) -> Arc<Memory> {
        Arc::new(Memory {
            shared,
            f: function(0),
            old: UnsafeCell::new(()),
            new: UnsafeCell::new(()),
        })
    }

    fn at(&self, entry: u64) -> &UnsafeCell<()> {
        match entry {
            entry if entry == code(self.f) => &self.old,
            entry if entry == new(self.f) => &self.new,
            entry => panic!("nothing is at {entry:#x}"),
        }
    }

    /// Writes code into memory; returns its entry.
    fn write(&self, entry: u64) -> u64 {
        self.at(entry).with_mut(|_| ());
        entry
    }

    fn execute(&self, entry: u64) {
        self.at(entry).with(|_| ());
    }

    /// A call.
    fn call(&self) {
        match start(&self.shared, self.f, 1) {
            Outcome::Code(entry) => self.execute(entry),
            Outcome::Failed => panic!("there is code"),
        }
    }

    /// A call through the slot alone, if it holds code.
    fn jump(&self) {
        let target = slot(&self.shared, self.f);
        if target != self.shared.cells.trampoline(self.f) {
            self.execute(target);
        }
    }

    /// The runtime reads the code.
    fn read(&self) {
        if let Some(entry) = self.shared.entry(self.f) {
            self.execute(entry);
        }
    }
}

fn spawn(memory: &Arc<Memory>, run: fn(&Memory)) -> thread::JoinHandle<()> {
    let memory = memory.clone();
    thread::spawn(move || run(&memory))
}

/// Code is published over code.
fn published(run: fn(&Memory)) {
    model(move || {
        let memory = Memory::of(table(1));
        let other = spawn(&memory, run);
        let (shared, f) = (&memory.shared, memory.f);
        assert!(shared.publish(f, memory.write(code(f))));
        assert!(shared.publish(f, memory.write(new(f))));
        other.join().unwrap();
    });
}

#[test]
fn a_call_finds_published_code_whole() {
    published(Memory::call);
}

#[test]
fn a_jump_finds_published_code_whole() {
    published(Memory::jump);
}

#[test]
fn the_runtime_finds_published_code_whole() {
    published(Memory::read);
}

/// Code is prepared; a first call stores it, or it is stored at once for a waiting caller.
#[test]
fn prepared_code_is_whole() {
    model(|| {
        let memory = Memory::of(table(1));
        let first = spawn(&memory, Memory::call);
        let second = spawn(&memory, Memory::jump);
        let (shared, f) = (&memory.shared, memory.f);
        assert!(shared.prepare(f, memory.write(code(f))));
        first.join().unwrap();
        second.join().unwrap();
    });
}

/// Code is made to rest while it is called, and again.
#[test]
fn resting_code_is_called() {
    model(|| {
        let shared = bound(1);
        let f = function(0);
        let first = call(&shared, f);
        let second = call(&shared, f);
        shared.rest(f);
        if shared.cells.get(f).word().kind() == Kind::Prepared {
            shared.rest(f);
        }
        for caller in [first, second] {
            assert!(matches!(caller.join().unwrap(), Outcome::Code(at) if at == code(f)));
        }
        assert_eq!(shared.entry(f), Some(code(f)));
    });
}

/// Resting code is unpublished while it is called: the caller requests code again.
#[test]
fn resting_code_is_taken_away() {
    model(|| {
        let shared = bound(1);
        let f = function(0);
        assert!(shared.rest(f));
        let caller = call(&shared, f);
        assert!(shared.unpublish(f));
        if let Some(asked) = shared.requests.next(&shared.cells) {
            shared.publish(asked, code(f) + 1);
        } else if shared.cells.get(f).word().kind() == Kind::Unbound {
            shared.publish(f, code(f) + 1);
        }
        while shared.cells.get(f).word().kind() == Kind::Requested {
            shared.publish(f, code(f) + 1);
        }
        let at = caller.join().unwrap();
        assert!(matches!(at, Outcome::Code(at) if at == code(f) || at == code(f) + 1));
    });
}

/// A gate closes before code, and opens to new code.
fn replaced(run: fn(&Memory)) {
    model(move || {
        let memory = Memory::of(bound(1));
        let other = spawn(&memory, run);
        let (shared, f) = (&memory.shared, memory.f);
        close(shared, &[f]);
        open(shared, &[(f, Target::Code(memory.write(new(f))))]);
        // And once more before the new code.
        close(shared, &[f]);
        open(shared, &[(f, Target::Keep)]);
        other.join().unwrap();
    });
}

#[test]
fn a_jump_finds_replaced_code_whole() {
    replaced(Memory::jump);
}

#[test]
fn the_runtime_finds_replaced_code_whole() {
    replaced(Memory::read);
}

/// A call was let through and reads its word late: it finds code that was published behind the
/// gate, or that the next gate keeps.
fn let_through(late: fn(&Memory)) {
    model(move || {
        let memory = Memory::of(bound_sleepers(1));
        let (shared, f) = (&memory.shared, memory.f);
        close(shared, &[f]);
        let caller = spawn(&memory, Memory::call);
        while !super::let_through(shared, 1) {
            thread::yield_now();
        }
        late(&memory);
        open(shared, &[(f, Target::Keep)]);
        caller.join().unwrap();
    });
}

#[test]
fn code_behind_the_gate_is_whole() {
    let_through(|memory| {
        let entry = memory.write(new(memory.f));
        assert!(memory.shared.publish(memory.f, entry));
    });
}

#[test]
fn code_behind_the_next_gate_is_whole() {
    let_through(|memory| {
        let to = Target::Code(memory.write(new(memory.f)));
        open(&memory.shared, &[(memory.f, to)]);
        close(&memory.shared, &[memory.f]);
    });
}
