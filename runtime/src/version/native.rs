//! Native code as a version: the slot leads to it, and samples in it are the function's.
//!
//! It takes only the last phases: it is recorded and published. Its memory is the program's, so
//! reclaim does not track it, and a version that replaces it leaves it as it is.

use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::Duration;

use uruk_base::{FunctionId, Tier, VersionId};
use uruk_heap::{Pool, Sealed};
use uruk_reclaim::IdMap;
use uruk_tiering::{EntryAddress, Facts, Late, Publication, Purpose};

use super::publish::RecordedVersion;
use crate::code::records::{Native, Version};
use crate::error::{Error, Refusal};
use crate::fork::gate;
use crate::version::compiler::Compiler;
use crate::version::request::Made;
use crate::version::request::Request;

/// Bytes of native code that count as one instruction of IR, for the policy's estimate of the cost
/// of better code.
const INSTRUCTION: u64 = 4;

/// Native code of a function that is replaced only together with its callers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InlinedCopy {
    /// The function, by its name in the dylib.
    pub name: String,
    /// Its code.
    pub code: Range<u64>,
}

impl Compiler {
    /// Publishes native code as a version of a function: its first, or in place of the current one.
    pub(crate) fn adopt(
        self: &Arc<Self>,
        id: FunctionId,
        entry: u64,
        code: Range<u64>,
        depends: Arc<[FunctionId]>,
    ) -> Result<VersionId, Error> {
        self.note_own(id, entry, &code, &depends);
        let bytes = code.end - code.start;
        let made = self.enter_native(id, entry, code, depends, false)?;
        let now = self.events.now();
        match made.first {
            true => {
                self.engines().compiled(now, id, Tier::Native, &made.made);
                self.engines().adopted(id, bytes);
            }
            false => self.engines().published(now, id, Tier::Native, &made.made),
        }
        Ok(made.made.version)
    }

    /// Publishes the native code of a function again, in place of the current version. If
    /// `counted`, calls pass a counter of entries first, and no event is sent.
    pub(crate) fn adopt_again(
        self: &Arc<Self>,
        id: FunctionId,
        counted: bool,
    ) -> Result<Made, Error> {
        let found = {
            let natives = self.versions.natives();
            let native = natives.get(&id.index());
            native.map(|it| (it.entry, it.own.clone(), Arc::clone(&it.depends)))
        };
        let (entry, code, depends) = found.ok_or_else(|| self.cancelled(id))?;
        let entry = match counted {
            true => self.counted_entry(id, entry)?,
            false => entry,
        };
        let entered = self.enter_native(id, entry, code, depends, counted)?;
        Ok(Made {
            counts: counted,
            ..entered.made
        })
    }

    /// Makes calls reach the native code of a function, in place of the current version.
    pub(crate) fn go_native(self: &Arc<Self>, id: FunctionId) -> Result<(), Error> {
        let _pass = gate::enter();
        if !self.has_native(id) {
            let function = self.name_of(id);
            let cause = Refusal::NotNative;
            return Err(Error::Version { function, cause });
        }
        let made = self.adopt_again(id, false)?;
        let now = self.events.now();
        self.engines().published(now, id, Tier::Native, &made);
        Ok(())
    }

    /// Records native code and publishes it.
    fn enter_native(
        self: &Arc<Self>,
        id: FunctionId,
        entry: u64,
        code: Range<u64>,
        depends: Arc<[FunctionId]>,
        quiet: bool,
    ) -> Result<EnteredNative, Error> {
        let first = self.stubs.entry(id).is_none();
        let request = Request {
            function: id,
            version: self.versions.ids.next(),
            tier: Tier::Native,
            purpose: if first {
                Purpose::First
            } else {
                Purpose::Change
            },
            ahead: false,
        };
        let version = request.version;
        let refused = self.refused(id);
        let versions = self.versions.of(id);
        let ticket = versions
            .request(version, request.tier, request.purpose)
            .map_err(&refused)?;
        versions.start(ticket).map_err(&refused)?;
        let epoch = self.publications.epoch();
        // Functions replaced from now on make the version late.
        if !self.has_native(id) {
            versions.cancel(version);
            return Err(self.cancelled(id));
        }
        versions
            .ready(ticket, EntryAddress(entry))
            .map_err(&refused)?;
        let made = native_made(version, &code);
        if !quiet {
            let bytes = code.end - code.start;
            self.tell_adopted(id, version, bytes);
        }
        self.file_native(id, version, entry, code, Arc::clone(&depends));
        let filed = RecordedVersion {
            request,
            made,
            depends,
            epoch,
            quiet,
        };
        let made = self.publish(filed, &versions, ticket)?;
        let Publication::Published { .. } = made.publication else {
            return Err(self.cancelled(id));
        };
        Ok(EnteredNative { made, first })
    }

    /// Whether a function has native code that matches its current body, and the current bodies of
    /// functions that may be inlined in it.
    pub(crate) fn has_native(&self, id: FunctionId) -> bool {
        let is_fresh = |epoch, id| Some(self.publications.publish().is_fresh(epoch, &[id]));
        self.has_native_if(id, is_fresh).unwrap_or_default()
    }

    /// The same; `None` while a set is being committed. For callers that hold the locks of samples or of
    /// reclaim, which a commit takes.
    pub(crate) fn try_has_native(&self, id: FunctionId) -> Option<bool> {
        let is_fresh = |epoch, id| Some(self.publications.try_publish()?.is_fresh(epoch, &[id]));
        self.has_native_if(id, is_fresh)
    }

    fn has_native_if(
        &self,
        id: FunctionId,
        is_fresh: impl Fn(u64, FunctionId) -> Option<bool>,
    ) -> Option<bool> {
        let native = {
            let natives = self.versions.natives();
            let native = natives.get(&id.index());
            native.map(|it| (it.epoch, Arc::clone(&it.depends)))
        };
        let Some((epoch, depends)) = native else {
            return Some(false);
        };
        if self.publications.epoch() == epoch {
            return Some(true);
        }
        for &it in std::iter::once(&id).chain(depends.iter()) {
            if !self.has_adopted_body(it, epoch, &is_fresh)? {
                return Some(false);
            }
        }
        Some(true)
    }

    /// Whether a function has the body with which its native code was adopted; or, if it has none,
    /// the one that it had after commit number `epoch`.
    fn has_adopted_body(
        &self,
        id: FunctionId,
        epoch: u64,
        is_fresh: &impl Fn(u64, FunctionId) -> Option<bool>,
    ) -> Option<bool> {
        let module = {
            let natives = self.versions.natives();
            natives.get(&id.index()).map(|it| Weak::clone(&it.module))
        };
        match module {
            Some(module) => {
                let function = self.function(id);
                let own = function.map(|it| Arc::as_ptr(&it.module));
                Some(own.is_some_and(|own| std::ptr::eq(own, module.as_ptr())))
            }
            None => is_fresh(epoch, id),
        }
    }

    /// The address at which calls are counted before they continue at `entry`. The code is never
    /// freed, so threads in it need not be found.
    fn counted_entry(&self, id: FunctionId, entry: u64) -> Result<u64, Error> {
        let known = |natives: &IdMap<u32, Native>| {
            let counted = natives.get(&id.index())?.counted.as_ref();
            counted.map(Sealed::address)
        };
        if let Some(at) = known(&self.versions.natives()) {
            return Ok(at);
        }
        let code = counting_code(self.counts.address(&self.heap, id)?, entry);
        let mut draft = self.heap.allocate(Pool::Code, code.len(), 16)?;
        draft.write(0, &code)?;
        let sealed = draft.seal()?;
        let at = sealed.address();
        if let Some(native) = self.versions.natives().get_mut(&id.index()) {
            native.counted = Some(sealed);
        }
        Ok(at)
    }

    /// Adds inlined copies to a function's native code.
    pub(crate) fn note_native(&self, id: FunctionId, beside: &[InlinedCopy]) {
        let mut natives = self.versions.natives();
        if let Some(native) = natives.get_mut(&id.index()) {
            // As below: without the entry.
            let inside = beside.iter().map(|it| it.code.start + 1..it.code.end);
            native.code.extend(inside.filter(|code| !code.is_empty()));
        }
    }

    /// Sets the functions that the native code of a function depends on, in place of the adopted
    /// list.
    pub(crate) fn set_native_depends(&self, id: FunctionId, depends: &Arc<[FunctionId]>) {
        if let Some(native) = self.versions.natives().get_mut(&id.index()) {
            native.depends = Arc::clone(depends);
        }
        let mut records = self.versions.lock();
        let record = records.get_mut(&id.index());
        let built = record.into_iter().flat_map(|record| &mut record.built);
        for version in built.filter(|version| version.tier == Tier::Native) {
            version.depends = Arc::clone(depends);
        }
    }

    /// The native code of functions that `wanted` selects by the bodies that may be in it.
    pub(crate) fn native_code(
        &self,
        wanted: impl Fn(FunctionId, &[FunctionId]) -> bool,
    ) -> Vec<(Range<u64>, FunctionId)> {
        let natives = self.versions.natives();
        let found = natives.iter().flat_map(|(&index, native)| {
            let id = FunctionId(index);
            let counts = wanted(id, &native.depends);
            let code = counts.then_some(&native.code).into_iter().flatten();
            code.map(move |range| (range.clone(), id))
        });
        found.collect()
    }

    /// Records it before calls reach it.
    fn file_native(
        &self,
        id: FunctionId,
        version: VersionId,
        entry: u64,
        code: Range<u64>,
        depends: Arc<[FunctionId]>,
    ) {
        self.sampled.insert(code.clone(), id, version);
        let mut records = self.versions.lock();
        let record = records.entry(id.index()).or_default();
        record.built.push(Version {
            id: version,
            tier: Tier::Native,
            entry,
            body_end: code.end,
            bytes: code.end - code.start,
            code,
            time: Duration::ZERO,
            samples: 0,
            depends,
            bodies: Arc::default(),
            unit: None,
            escapes: false,
            object: None,
        });
    }

    /// Keeps the place of a function's native code permanently.
    fn note_own(&self, id: FunctionId, entry: u64, code: &Range<u64>, depends: &Arc<[FunctionId]>) {
        // An entry is no return address, but lies on stacks as a function pointer.
        let inside = entry.max(code.start + 1)..code.end;
        // Read before the body, so that it is no newer.
        let epoch = self.publications.epoch();
        let function = self.function(id);
        let module = function.map_or_else(Weak::new, |it| Arc::downgrade(&it.module));
        let mut natives = self.versions.natives();
        let before = natives.remove(&id.index());
        let native = Native {
            code: Vec::from_iter((!inside.is_empty()).then_some(inside)),
            depends: Arc::clone(depends),
            entry,
            own: code.clone(),
            counted: before.and_then(|before| before.counted),
            module,
            epoch,
        };
        natives.insert(id.index(), native);
    }
}

/// Native code that was published.
struct EnteredNative {
    made: Made,
    /// Whether it is the function's first code.
    first: bool,
}

/// Counts an entry at `counter` and continues at `entry`. Changes only flags and r11, in which
/// callers neither keep nor pass values. No register then holds the entry. A scan for old code
/// would find the address for as long as the program leaves r11 alone, and mistake the thread for
/// one in the function.
fn counting_code(counter: u64, entry: u64) -> Vec<u8> {
    let mut code = vec![0x49, 0xbb]; // mov r11, counter
    code.extend(counter.to_le_bytes());
    code.extend([0x41, 0xff, 0x03]); // inc dword [r11]
    code.extend([0xff, 0x25, 0, 0, 0, 0]); // jmp [rip]
    code.extend(entry.to_le_bytes());
    code
}

/// The report of native code.
fn native_made(version: VersionId, code: &Range<u64>) -> Made {
    let size = code.end - code.start;
    Made {
        version,
        compiling: Duration::ZERO,
        linking: Duration::ZERO,
        facts: Facts {
            instructions: u32::try_from(size / INSTRUCTION).unwrap_or(u32::MAX),
            ..Facts::default()
        },
        counts: false,
        callees: 0,
        object: None,
        words: None,
        publication: Publication::Dropped(Late::GivenUp),
    }
}

#[cfg(test)]
mod tests {
    use std::arch::naked_asm;

    use uruk_heap::{Heap, HeapConfig, Pool};

    use super::counting_code;

    /// Returns r11 as it was at the entry.
    #[unsafe(naked)]
    extern "C" fn counted() -> u64 {
        naked_asm!("mov rax, r11", "ret")
    }

    #[test]
    fn no_register_keeps_the_entry_of_counted_code() {
        let _pass = crate::fork::gate::enter();
        let heap = Heap::new(HeapConfig::default()).expect("a heap");
        let mut count = 0_u32;
        let (counter, entry) = (&raw mut count as u64, counted as *const () as u64);
        let code = counting_code(counter, entry);
        let mut draft = heap.allocate(Pool::Code, code.len(), 16).expect("room");
        draft.write(0, &code).expect("within it");
        let sealed = draft.seal().expect("code");
        let at = sealed.address() as *const ();
        // SAFETY: code that counts, and continues in a function of this type.
        let counted = unsafe { std::mem::transmute::<*const (), extern "C" fn() -> u64>(at) };
        assert_eq!([counted(), counted()], [counter; 2]);
        // SAFETY: the number above, which is alive.
        assert_eq!(unsafe { (&raw const count).read_volatile() }, 2);
    }
}
