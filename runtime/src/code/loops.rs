//! The words of the loops of one version of tier 1: the offer at each, and passes of its head that it
//! counts. `uruk_tiering::offers` says which thread writes which, and when; here is their memory.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use uruk_base::StubAddress;
use uruk_base::{FunctionId, VersionId};
use uruk_codegen::{Compiled, Described, Head, Heads};
use uruk_heap::{Heap, HeapError, Pool};
use uruk_tiering::offers::{LoopWords, Offers};
use uruk_tiering::passes::{FIRST, Measure, Reading, Words};

use crate::code::body::ModuleFunction;
use crate::code::loop_exits::LoopExits;
use crate::code::loop_words::{LoopWordMemory, Passes};
use crate::fork::{confine, gate};
use uruk_base::locks::Mutex;
use uruk_codegen::Start;

/// How often guest code is asked to read an offer. A store of a count may undo it the first time, but
/// then the count is used up, and no other is on the way.
const TRIES: u32 = 3;

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
    /// The loops; their fingerprints are those of the exits.
    pub(crate) heads: Vec<Head>,
    exits: LoopExits,
    memory: Arc<LoopWordMemory>,
    offers: Offers,
    passes: Mutex<HeadPasses>,
    /// Values that live across the heads, once they were compared with another body's: they may be
    /// needed again when the module is gone.
    described: OnceLock<Vec<Described>>,
    ended: Arc<Ended>,
    /// How often loops of freed versions were left.
    gone: Arc<AtomicU64>,
}

/// Passes of the heads.
#[derive(Debug)]
struct HeadPasses {
    measures: Vec<Measure>,
    /// All passes up to the last reading, about, by head.
    all: Vec<u64>,
}

impl HeadPasses {
    /// A head was asked for other passes while so many were left to count.
    fn overwrite(&mut self, place: usize, left: u32, asked: u32) {
        let measure = &mut self.measures[place];
        self.all[place] += u64::from(measure.counted(left));
        measure.asked(asked, cycles());
    }
}

/// The processor's cycle counter, which guest code reads, too.
fn cycles() -> u64 {
    // SAFETY: every x86-64 processor has it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Time between two readings of loops that have counted for the first time.
const MOMENT: Duration = Duration::from_micros(2);

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
        compiled: &Compiled,
        ended: &Arc<Ended>,
        gone: &Arc<AtomicU64>,
    ) -> Result<Arc<Loops>, HeapError> {
        let heads = &compiled.heads.counted;
        let bytes = Heads::bytes(heads.len());
        let draft = heap.allocate(Pool::ReadWrite, bytes, align_of::<u64>())?;
        let whose = function.origin.as_ref().map_or(id, |it| it.whose);
        let loops = Arc::new(Loops {
            function: id,
            whose,
            of: WeakFunction::of(function),
            heads: heads.clone(),
            exits: LoopExits::of(compiled),
            memory: Arc::new(LoopWordMemory::new(draft.seal()?)),
            offers: Offers::new(heads.len()),
            passes: Mutex::new(HeadPasses {
                measures: vec![Measure::begin(FIRST, cycles()); heads.len()],
                all: vec![0; heads.len()],
            }),
            described: OnceLock::new(),
            ended: Arc::clone(ended),
            gone: Arc::clone(gone),
        });
        loops.all_words().for_each(|words| {
            words.ask_after(FIRST);
        });
        loops.note_times(confine::may_read_cycles());
        loops.expect(&loops.passes.lock());
        Ok(loops)
    }

    pub(crate) fn address(&self) -> u64 {
        self.memory.address()
    }

    /// Its exits.
    pub(crate) fn exits(&self) -> &LoopExits {
        &self.exits
    }

    /// Sets the exits, as [`LoopExits::set`] does.
    pub(crate) fn set_exits(
        &self,
        exits: &[Option<(u64, u64)>],
        version: Option<VersionId>,
    ) -> bool {
        let word = |place| {
            self.memory
                .word64(Heads::places(place, self.heads.len()).exit)
        };
        // Guests read it after the slot. Partner: the store of the first offer, which comes after it
        // and releases.
        let store = |place, address| word(place).store(address, Ordering::Release);
        self.exits.set(exits, version, store)
    }

    /// The code of the version was freed: its exits are retired, and none are made any more.
    pub(super) fn code_freed(&self) {
        if let Some(exits) = self.exits.end() {
            let _pass = gate::enter();
            self.ended.lock().exits.push(exits);
        }
    }

    /// Its counts.
    pub(crate) fn counts(&self) -> Passes {
        Passes::of(&self.memory, self.heads.len())
    }

    /// Bytes of the words.
    pub(crate) fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    fn words(&self, place: usize) -> LoopWords<'_> {
        debug_assert!(place < self.heads.len());
        let places = Heads::places(place, self.heads.len());
        LoopWords {
            slot: self.memory.word64(places.slot),
            when: self.memory.word64(places.when),
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

    /// How often the head of a loop was passed, about; zero only if it was not.
    pub(crate) fn count(&self, place: usize) -> u64 {
        let left = self.words(place).left_to_count();
        let passed = self.passes.lock();
        passed.all[place] + u64::from(passed.measures[place].counted(left))
    }

    /// How often all heads were passed.
    pub(crate) fn passes(&self) -> u64 {
        (0..self.heads.len()).map(|place| self.count(place)).sum()
    }

    /// Fills in the passes of each head since the last call, about. For one thread, which then calls
    /// [`Loops::ask_to_count`].
    pub(crate) fn read_passes(&self, of_each: &mut [u64]) {
        let mut passed = self.passes.lock();
        let mut soon = false;
        for (place, passes) in of_each.iter_mut().enumerate() {
            let reading = self.read(&mut passed, place);
            *passes = reading.passes;
            soon |= reading.soon;
        }
        if soon {
            self.ask_all(&mut passed);
            let start = Instant::now();
            while start.elapsed() < MOMENT {
                std::hint::spin_loop();
            }
            for (place, passes) in of_each.iter_mut().enumerate() {
                *passes += self.read(&mut passed, place).passes;
            }
        }
        self.expect(&passed);
    }

    /// Asks all heads to count that do not.
    pub(crate) fn ask_to_count(&self) {
        let mut passed = self.passes.lock();
        self.ask_all(&mut passed);
        self.expect(&passed);
    }

    /// Whether heads note the time when they have counted, by the processor's cycle counter.
    pub(crate) fn note_times(&self, wanted: bool) {
        let timed = Heads::places(0, self.heads.len()).timed;
        self.at(timed).store(u32::from(wanted), Ordering::Relaxed);
    }

    fn read(&self, passed: &mut HeadPasses, place: usize) -> Reading {
        let words = self.words(place);
        let now = Words {
            left: words.left_to_count(),
            ended_at: words.ended_at(),
        };
        // The offer asked for one pass: who made it notes those that were counted before.
        if words.is_offered() {
            return Reading::default();
        }
        let reading = passed.measures[place].read(now, cycles());
        passed.all[place] += reading.passes;
        reading
    }

    fn ask_all(&self, passed: &mut HeadPasses) {
        for (place, words) in self.all_words().enumerate() {
            let left = words.left_to_count();
            if let Some(passes) = passed.measures[place].ask(left, cycles()) {
                words.ask_after(passes);
            }
            // An offer is to be read at the next pass; its request may have been undone.
            if words.is_offered() && words.left_to_count() != 1 {
                let left = words.ask();
                passed.overwrite(place, left, 1);
            }
        }
    }

    fn expect(&self, passed: &HeadPasses) {
        let expected = passed.measures.iter().map(Measure::expected);
        let expected = expected.fold(0, u32::wrapping_sub);
        self.memory.expect(expected);
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
        let asked = self.offers.offer(words, stub.0);
        self.insist(place, asked);
        asked.is_some()
    }

    /// Offers a continuation of the replacing body at the head of a loop; false if the version was
    /// not replaced, or its offers have ended.
    pub(crate) fn lead(&self, place: usize, continuation: FunctionId, stub: StubAddress) -> bool {
        let words = self.words(place);
        let asked = self.offers.lead(words, continuation, stub.0);
        self.insist(place, asked);
        asked.is_some()
    }

    /// True if something is offered at the head of a loop.
    pub(crate) fn is_offered(&self, place: usize) -> bool {
        self.words(place).is_offered()
    }

    /// True if something is offered at any.
    pub(crate) fn offers(&self) -> bool {
        self.all_words().any(LoopWords::is_offered)
    }

    /// Makes guest code read the slot after so many passes.
    pub(crate) fn ask_after(&self, place: usize, passes: u32) {
        let left = self.words(place).ask_after(passes);
        self.passes.lock().overwrite(place, left, passes);
    }

    /// Asks at the head of a loop until guest code is sure to read the slot. `asked`: an offer was made
    /// while so many passes were left to count.
    fn insist(&self, place: usize, asked: Option<u32>) {
        let Some(mut left) = asked else {
            return;
        };
        let words = self.words(place);
        for _ in 0..TRIES {
            self.passes.lock().overwrite(place, left, 1);
            let asked = Instant::now();
            while asked.elapsed() < STORED {
                std::hint::spin_loop();
            }
            if words.left_to_count() == 1 {
                return;
            }
            left = words.ask();
        }
        self.passes.lock().overwrite(place, left, 1);
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
    /// Where it starts in another body; `None` if it continues its own, at the head of the loop.
    pub(crate) elsewhere: Option<Start>,
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
    /// Exits of loops of freed versions.
    pub(crate) exits: Vec<VersionId>,
}
