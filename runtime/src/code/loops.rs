//! The words of the loops of one version of tier 1: the offer at each, and how often its head was
//! passed. `uruk_tiering::offers` says which thread writes which, and when; here is their memory.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use uruk_base::FunctionId;
use uruk_base::StubAddress;
use uruk_codegen::{Described, Head, Heads};
use uruk_heap::{Heap, HeapError, Pool, Sealed};
use uruk_tiering::offers::{LoopWords, Offers};

use crate::code::body::ModuleFunction;
use crate::fork::gate;
use uruk_base::locks::Mutex;
use uruk_codegen::Start;

/// How often the sign of an offer is written.
const TRIES: u32 = 100;

/// Time after which pending stores of another core are in memory.
const STORED: Duration = Duration::from_micros(1);

/// The loops of one version.
#[derive(Debug)]
pub(crate) struct Loops {
    pub(crate) function: FunctionId,
    /// The function of the loops: `function`, or, if that is a continuation, the one it continues.
    pub(crate) whose: FunctionId,
    /// The function that continuations are made from; its module must exist for that.
    pub(crate) of: WeakFunction,
    pub(crate) heads: Vec<Head>,
    memory: Arc<LoopWordMemory>,
    offers: Offers,
    /// Values that live across the heads, once they were compared with another body's: they may be
    /// needed again when the module is gone.
    described: OnceLock<Vec<Described>>,
    ended: Arc<Ended>,
    /// How often loops of freed versions were left.
    gone: Arc<AtomicU64>,
}

/// The memory of the words of one version's loops: lives as long as the code that counts in it, and
/// as long as it is read.
#[derive(Debug)]
struct LoopWordMemory(Option<Sealed>);

impl LoopWordMemory {
    fn address(&self) -> u64 {
        self.0.as_ref().map_or(0, Sealed::address)
    }

    /// The word of 4 bytes at an offset.
    fn word32(&self, offset: usize) -> &AtomicU32 {
        let words = self.0.as_ref().map_or(&[][..], Sealed::words32);
        &words[offset / size_of::<AtomicU32>()]
    }

    /// The word of 8 bytes at an offset.
    fn word64(&self, offset: usize) -> &AtomicU64 {
        let words = self.0.as_ref().map_or(&[][..], Sealed::words64);
        &words[offset / size_of::<AtomicU64>()]
    }
}

impl Drop for LoopWordMemory {
    fn drop(&mut self) {
        // The last holder may have no pass.
        let _pass = gate::enter();
        if let Some(memory) = self.0.take() {
            // SAFETY: the code that counts in it holds its `Loops`, which holds `self`, until it
            // is freed, and it is freed when no thread can be in it.
            unsafe { memory.release() };
        }
    }
}

/// The counts of one version's loops, also after the version is freed.
#[derive(Debug)]
pub(crate) struct Passes {
    memory: Arc<LoopWordMemory>,
    /// Offset of the first count.
    first: usize,
    loops: usize,
}

impl Passes {
    /// Changes with every pass of any head, and with every request.
    pub(crate) fn sum(&self) -> u32 {
        let count = |place: usize| {
            let at = self.first + place * size_of::<AtomicU32>();
            self.memory.word32(at).load(Ordering::Relaxed)
        };
        (0..self.loops).map(count).fold(0, u32::wrapping_add)
    }
}

/// A function without a reference to its module.
#[derive(Debug)]
pub(crate) struct WeakFunction {
    module: Weak<crate::code::module::Module>,
    symbol: uruk_codegen::SymbolId,
    name: &'static std::ffi::CStr,
}

impl WeakFunction {
    fn of(function: &ModuleFunction) -> WeakFunction {
        WeakFunction {
            module: Arc::downgrade(&function.module),
            symbol: function.symbol,
            name: function.name,
        }
    }

    pub(crate) fn is_in(&self, module: &Arc<crate::code::module::Module>) -> bool {
        std::ptr::eq(self.module.as_ptr(), Arc::as_ptr(module))
    }

    /// The function, if its module exists.
    pub(crate) fn upgrade(&self) -> Option<ModuleFunction> {
        Some(ModuleFunction {
            module: self.module.upgrade()?,
            symbol: self.symbol,
            name: self.name,
            origin: None,
        })
    }
}

impl Loops {
    /// Words for the loops of a version of `function`.
    ///
    /// # Errors
    /// No room.
    pub(crate) fn new(
        heap: &Heap,
        id: FunctionId,
        function: &ModuleFunction,
        heads: &[Head],
        ended: &Arc<Ended>,
        gone: &Arc<AtomicU64>,
    ) -> Result<Arc<Loops>, HeapError> {
        let bytes = Heads::bytes(heads.len());
        let draft = heap.allocate(Pool::ReadWrite, bytes, align_of::<u64>())?;
        let whose = function.origin.as_ref().map_or(id, |it| it.whose);
        Ok(Arc::new(Loops {
            function: id,
            whose,
            of: WeakFunction::of(function),
            heads: heads.to_vec(),
            memory: Arc::new(LoopWordMemory(Some(draft.seal()?))),
            offers: Offers::new(heads.len()),
            described: OnceLock::new(),
            ended: Arc::clone(ended),
            gone: Arc::clone(gone),
        }))
    }

    pub(crate) fn address(&self) -> u64 {
        self.memory.address()
    }

    /// Its counts.
    pub(crate) fn counts(&self) -> Passes {
        let loops = self.heads.len();
        Passes {
            memory: Arc::clone(&self.memory),
            first: Heads::places(0, loops).count,
            loops,
        }
    }

    /// Bytes of the words.
    pub(crate) fn bytes(&self) -> usize {
        self.memory.0.as_ref().map_or(0, Sealed::held)
    }

    fn words(&self, place: usize) -> LoopWords<'_> {
        debug_assert!(place < self.heads.len());
        let places = Heads::places(place, self.heads.len());
        LoopWords {
            slot: self.memory.word64(places.slot),
            count: self.at(places.count),
        }
    }

    fn all_words(&self) -> impl Iterator<Item = LoopWords<'_>> {
        (0..self.heads.len()).map(|place| self.words(place))
    }

    fn at(&self, offset: usize) -> &AtomicU32 {
        debug_assert!(offset < Heads::bytes(self.heads.len()));
        self.memory.word32(offset)
    }

    /// Values that live across the heads of the body; nothing if that is not known any more.
    ///
    /// # Errors
    /// The errors of `find`, which reads the body.
    pub(crate) fn described<E>(
        &self,
        find: impl FnOnce(&ModuleFunction) -> Result<Vec<Described>, E>,
    ) -> Result<&[Described], E> {
        if let Some(known) = self.described.get() {
            return Ok(known);
        }
        let Some(function) = self.of.upgrade() else {
            return Ok(&[]);
        };
        let found = find(&function)?;
        Ok(self.described.get_or_init(|| found))
    }

    /// How often its loops were left.
    pub(crate) fn left(&self) -> u64 {
        let loops = self.heads.len();
        let left = |place| self.at(Heads::places(place, loops).left);
        let all = (0..loops).map(|place| u64::from(left(place).load(Ordering::Relaxed)));
        all.sum()
    }

    /// How often the head of a loop was passed, modulo 2^31.
    pub(crate) fn count(&self, place: usize) -> u32 {
        self.words(place).passes()
    }

    /// How often all heads were passed.
    pub(crate) fn passes(&self) -> u64 {
        self.all_words().map(|it| u64::from(it.passes())).sum()
    }

    /// The continuation of a loop, if one was made.
    pub(crate) fn continuation(&self, place: usize) -> Option<FunctionId> {
        self.offers.continuation(place)
    }

    /// Notes the continuation of a loop; false if there is one, or none is needed any more.
    pub(crate) fn note(&self, place: usize, continuation: FunctionId) -> bool {
        self.offers.note(place, continuation)
    }

    /// Notes that the continuation of a loop cannot be made.
    pub(crate) fn fail(&self, place: usize) {
        self.offers.fail(place);
    }

    pub(crate) fn has_failed(&self, place: usize) -> bool {
        self.offers.has_failed(place)
    }

    /// Offers a continuation at the head of a loop; false if nothing is offered any more.
    pub(crate) fn offer(&self, place: usize, stub: StubAddress) -> bool {
        let words = self.words(place);
        let offered = self.offers.offer(words, stub.0);
        if offered {
            insist(words);
        }
        offered
    }

    /// Offers a continuation of the replacing body at the head of a loop; false if the version was
    /// not replaced, or its offers have ended.
    pub(crate) fn lead(&self, place: usize, continuation: FunctionId, stub: StubAddress) -> bool {
        let words = self.words(place);
        let offered = self.offers.lead(words, continuation, stub.0);
        if offered {
            insist(words);
        }
        offered
    }

    /// True if something is offered at the head of a loop.
    pub(crate) fn is_offered(&self, place: usize) -> bool {
        self.words(place).is_offered()
    }

    /// True if something is offered at any.
    pub(crate) fn offers(&self) -> bool {
        self.all_words().any(LoopWords::is_offered)
    }

    /// Makes guest code read all offers again: it may have stored counts over the sign.
    pub(crate) fn ask_again(&self) {
        let offered = self.all_words().filter(|it| it.is_offered());
        offered.for_each(LoopWords::ask);
    }

    /// Makes guest code read the slot after so many passes.
    pub(crate) fn ask_after(&self, place: usize, passes: u32) {
        self.words(place).ask_after(passes);
    }

    /// Ends offers of the version's body.
    pub(crate) fn close(&self) {
        self.offers.close(self.all_words());
    }

    /// Ends all offers.
    pub(crate) fn give_up(&self) {
        self.offers.give_up(self.all_words());
    }

    /// Allows offers of the version's body again, and ends those of other bodies.
    pub(crate) fn open(&self) {
        self.offers.open(self.all_words());
    }

    /// Takes the offers back, until the next offer.
    pub(crate) fn take_back(&self) {
        self.offers.take_back(self.all_words());
    }

    /// True if offers of the version's body have ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.offers.is_closed()
    }
}

/// Writes the sign until it stays, or a hundred times. A core in a short loop has a store of its
/// own count under way nearly all the time. That store ends up over the sign, and the core goes on
/// with its own value: a sign is lost about every other time.
fn insist(words: LoopWords<'_>) {
    for _ in 0..TRIES {
        let asked = Instant::now();
        while asked.elapsed() < STORED {
            std::hint::spin_loop();
        }
        if words.is_asked() {
            return;
        }
        words.ask();
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        let left = self.left();
        self.gone.fetch_add(left, Ordering::Relaxed);
        let _pass = gate::enter();
        let continuations = self.offers.end();
        let mut ended = self.ended.lock();
        ended.versions.push(self.whose);
        ended.continuations.extend(continuations);
    }
}

/// The start of a continuation, and its function.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) loops: Weak<Loops>,
    /// The function that the loop belongs to.
    pub(crate) whose: FunctionId,
    /// The loop's index among those of its version.
    pub(crate) place: usize,
    pub(crate) start: Start,
}

/// Freed versions and continuations without callers, until they are cleaned up.
pub(crate) type Ended = Mutex<EndedLoops>;

/// See [`Ended`].
#[derive(Debug, Default)]
pub(crate) struct EndedLoops {
    /// Continuations whose last caller is freed.
    pub(crate) continuations: Vec<FunctionId>,
    /// Functions with a freed version that had loops.
    pub(crate) versions: Vec<FunctionId>,
}
