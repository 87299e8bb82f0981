//! Slots, stubs and first calls: a function keeps one address for its whole life while its code is
//! made, replaced and freed.
//!
//! Every function has a *stub* at a fixed address, `jmp [slot]`, and a *slot*, an 8-byte word with
//! the target of calls. The target is the function's code, or, while it has none, a trampoline
//! behind the stub. The trampoline saves the full register state and requests the code
//! ([`StubTable`]).
//!
//! ```
//! use uruk_heap::{Heap, HeapConfig, Pool};
//! use uruk_stubs::{EntryAddress, StubTable, call_ptr};
//!
//! let heap = Heap::new(HeapConfig::default())?;
//! let table = StubTable::new(&heap)?;
//! let function = table.allocate()?;
//! let service = std::thread::spawn({
//!     let (heap, table) = (heap.clone(), table.clone());
//!     move || {
//!         // The first call asks for the function's code.
//!         let asked = table.wait_request(None).expect("only a request wakes us");
//!         let mut draft = heap.allocate(Pool::Code, 6, 16).expect("room for 6 bytes");
//!         draft.write(0, &[0xb8, 42, 0, 0, 0, 0xc3]).expect("in bounds"); // mov eax, 42; ret
//!         let code = draft.seal().expect("no fork between");
//!         table.publish(asked, EntryAddress(code.address()));
//!     }
//! });
//! // SAFETY: a function of that type will be published there.
//! assert_eq!(unsafe { call_ptr(table.stub_address(function).0) }, 42);
//! service.join().expect("does not panic");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Invariants
//! - A slot holds the address of ready code or of its own trampoline.
//! - Stub bytes never change; only slots do, by one aligned store.
//! - The guest side is async-signal-safe and keeps nothing on the guest's stack
//!   that others touch (`guest`).
//! - Racing first calls give one request.
//! - A set of functions changes at one instant (`gate`).
//! - No locks anywhere; see `table` for `fork`.
//!
//! # Map, in reading order
//! `error`, `function`: words. `state`: the state of a function, all legal steps. `cell`: the 16
//! bytes shared with machine code. `requests`: from guests to the service. `shared`: the runtime's
//! changes; `resting`: finds which functions are called. `guest`: the guest's side. `kept`,
//! `spots`, `gate`: one instant for a set. `image`, `vector`, `resolver`, `cfi`: machine code and
//! its frame descriptions. `place`: their places in the heap. `table`: everything together. `call`,
//! `landing`: from Rust into guest code, and leaving it at any instruction. `sync`, `futex`, `sys`:
//! the edge to the system and to loom.
//!
//! # Seam: native functions
//! Functions of the host program can be made replaceable the same way: their
//! entry (prepared by `-fpatchable-function-entry` or found to hold whole
//! instructions of at least five bytes) is overwritten once with a `jmp` to a
//! stub allocated here, and the displaced instructions become the code that is
//! published first. That patching needs the cross-modification protocol and a
//! proof that no thread stands in the displaced bytes; it belongs in a module of
//! its own beside `image`. The table needs no change for it: such a function is one whose first
//! code was published before its first call.

#![deny(missing_docs)]
#![cfg_attr(loom, allow(dead_code, reason = "the model needs no machine code"))]

#[cfg(not(loom))]
mod call;
mod cell;
#[cfg(not(loom))]
mod cfi;
mod error;
mod function;
mod futex;
mod gate;
mod guest;
#[cfg(not(loom))]
mod image;
mod kept;
#[cfg(not(loom))]
mod landing;
#[cfg(all(loom, test))]
mod model;
#[cfg(not(loom))]
mod place;
mod requests;
#[cfg(not(loom))]
mod resolver;
mod resting;
#[cfg(not(loom))]
pub mod seat;
#[cfg(not(loom))]
mod service;
mod shared;
#[cfg(all(test, not(loom)))]
mod snapshot;
mod spots;
mod state;
mod sync;
#[cfg(not(loom))]
mod sys;
#[cfg(not(loom))]
mod table;
#[cfg(not(loom))]
mod vector;
#[cfg(not(loom))]
mod waits;

#[cfg(not(loom))]
pub use call::{call_init, call_main, call_ptr, call_structor, call_void, call_with};
#[cfg(not(loom))]
pub use cfi::UnwindRow;
pub use error::StubError;
pub use function::Functions;
#[cfg(not(loom))]
pub use gate::{Gate, Parked, ReadyGate, Target};
#[cfg(not(loom))]
pub use guest::{FAILURE_STATUS, FailureHandler};
#[cfg(not(loom))]
pub use landing::{Landing, Values, call_landed, call_values, land, landing_address};
#[cfg(not(loom))]
pub use sys::end_cycles;
#[cfg(not(loom))]
pub use table::{StubStats, StubTable};
pub use uruk_base::{EntryAddress, FunctionId, SlotAddress, StubAddress};
