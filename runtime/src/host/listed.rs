//! Images in the list of `dl_iterate_phdr`, for libraries that search the program's data: garbage
//! collectors, which scan it for pointers, and leak checkers.
//!
//! An image is listed as the dynamic loader lists a library: its constants and its variables are
//! `PT_LOAD` segments, its thread-locals `PT_TLS`. Code is left out: it has no unwind table that an
//! unwinder could read there. The first image of a program is its executable: it comes first and
//! has no name. The process's own executable, which is the runtime, is not listed.
//!
//! These functions replace the C library's: guest code is linked to them, and the words of
//! libraries are overwritten ([`attend`], [`preempt`](crate::guest::preempt)). Unwinders keep the C
//! library's function: they search frames of the runtime, too.
//!
//! # Readers
//! A callback may scan the listed memory with all other threads stopped, as LeakSanitizer does. So
//! a reader takes no lock but the loader's, under which the C library calls back. Memory of an
//! image is not freed while there are readers ([`Listed`]).
//!
//! | field | writer | reader |
//! |---|---|---|
//! | `HEAD`, [`Node::next`] | under `STATE`, release | any, acquire |
//! | `READERS` | each reader, before it reads `HEAD` and after | the thread that unlinks a node, after that; both sequentially consistent |
//! | `ADDED`, `REMOVED` | under `STATE`, relaxed | any |
//!
//! A reader that left its callback by a jump stays counted: the memory of images is then never
//! freed.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use uruk_base::locks::Mutex;
use uruk_heap::{Pool, Sealed};

use super::library::NextDefinition;
use super::tls;
use crate::fork::gate;
use crate::host::loaded::{self, Loaded};
use crate::host::mapping::Mapping;

mod variables;

pub(crate) use variables::{VariableRanges, place_of};

const NAME: &CStr = c"dl_iterate_phdr";

/// All names whose words are overwritten.
pub(crate) const NAMES: [&CStr; 2] = [NAME, c"__tls_get_addr"];

/// A callback, which may throw.
pub(crate) type Callback =
    unsafe extern "C-unwind" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int;

/// One image.
struct Node {
    next: AtomicPtr<Node>,
    previous: *mut Node,
    /// Whether it is the program's executable.
    main: bool,
    base: u64,
    name: CString,
    headers: Box<[libc::Elf64_Phdr]>,
    variables: VariableRanges,
    tls: Option<tls::TemplatePlace>,
}

/// The remains of a removed image, kept until no reader can see them.
struct RemovedImage {
    _node: Box<Node>,
    data: Vec<Sealed>,
    _thread_locals: Option<tls::OwnedSlot>,
    _apart: Arc<[Mapping]>,
}

struct ListState {
    last: *mut Node,
    gone: Vec<RemovedImage>,
}

// SAFETY: nodes are written under the lock around the state.
unsafe impl Send for ListState {}
// SAFETY: a node is owned by its holder; the memory it refers to is the process's.
unsafe impl Send for RemovedImage {}

static HEAD: AtomicPtr<Node> = AtomicPtr::new(null_mut());
static READERS: AtomicUsize = AtomicUsize::new(0);
static ADDED: AtomicU64 = AtomicU64::new(0);
static REMOVED: AtomicU64 = AtomicU64::new(0);
static STATE: Mutex<ListState> = Mutex::new(ListState {
    last: null_mut(),
    gone: Vec::new(),
});

/// Load addresses of the runtime's own files, which are not listed for a program.
static HIDDEN: OnceLock<Vec<u64>> = OnceLock::new();

/// The parts of an image.
pub(crate) struct ImageShape<'a> {
    /// Its data, in any order; code in it is skipped.
    pub(crate) memory: &'a [Sealed],
    /// Bytes of its zero-initialized variables, at the end.
    pub(crate) zeros: usize,
    /// Variables in separate mappings.
    pub(crate) apart: &'a [Mapping],
    pub(crate) thread_locals: Option<tls::TemplatePlace>,
    /// The exported variables.
    pub(crate) variables: VariableRanges,
    /// Whether it is the program's executable.
    pub(crate) main: bool,
}

/// An image that is listed while this lives.
#[derive(Debug)]
pub(crate) struct Listed {
    node: *mut Node,
    data: Vec<Sealed>,
    thread_locals: Option<tls::OwnedSlot>,
    apart: Arc<[Mapping]>,
}

// SAFETY: the node is touched under the lock only, until it is freed.
unsafe impl Send for Listed {}
// SAFETY: as above; nothing is done through a shared reference.
unsafe impl Sync for Listed {}

impl Listed {
    /// Lists an image whose data is written; `None` if it has none. Under a pass.
    pub(crate) fn new(name: &str, shape: ImageShape<'_>) -> Option<Listed> {
        let base = shape.memory.iter().filter(|one| one.pool() != Pool::Code);
        let apart = shape.apart.iter().map(|it| it.range().start);
        let base = base.map(Sealed::address).chain(apart).min();
        let template = || Some(tls::template(shape.thread_locals?)?.0);
        let base = base.or_else(template)? / PAGE * PAGE;
        let name = if shape.main { "" } else { name };
        let node = Box::into_raw(Box::new(Node {
            next: AtomicPtr::new(null_mut()),
            previous: null_mut(),
            main: shape.main,
            base,
            name: CString::new(name.replace('\0', "")).unwrap_or_default(),
            headers: headers(base, &shape),
            variables: shape.variables,
            tls: shape.thread_locals,
        }));
        let mut state = STATE.lock();
        // SAFETY: the last node, which is unlinked under the lock only; and the new one, which is
        // ours.
        unsafe { (*node).previous = state.last };
        // Release: with the acquire of readers.
        link_after(state.last).store(node, Ordering::Release);
        state.last = node;
        ADDED.fetch_add(1, Ordering::Relaxed);
        drop(state);
        Some(Listed {
            node,
            data: Vec::new(),
            thread_locals: None,
            apart: Arc::default(),
        })
    }

    /// Unlists the image and frees its data as soon as no reader can see it.
    ///
    /// # Safety
    /// 1. As for [`Sealed::release`], except for readers of the list.
    pub(crate) unsafe fn end(
        mut self,
        data: Vec<Sealed>,
        thread_locals: Option<tls::OwnedSlot>,
        apart: Arc<[Mapping]>,
    ) {
        (self.data, self.thread_locals, self.apart) = (data, thread_locals, apart);
    }
}

/// The link to the node after `node`.
fn link_after(node: *mut Node) -> &'static AtomicPtr<Node> {
    // SAFETY: a node of the list, which is not unlinked while the caller has the lock.
    match unsafe { node.as_ref() } {
        Some(node) => &node.next,
        None => &HEAD,
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let _pass = gate::enter();
        let mut state = STATE.lock();
        // SAFETY: a node that `new` leaked, and nothing else frees; its neighbours are in the list.
        let node = unsafe { Box::from_raw(self.node) };
        let next = node.next.load(Ordering::Relaxed);
        link_after(node.previous).store(next, Ordering::SeqCst);
        // SAFETY: as above.
        match unsafe { next.as_mut() } {
            Some(next) => next.previous = node.previous,
            None => state.last = node.previous,
        }
        REMOVED.fetch_add(1, Ordering::Relaxed);
        state.gone.push(RemovedImage {
            _node: node,
            data: std::mem::take(&mut self.data),
            _thread_locals: self.thread_locals.take(),
            _apart: std::mem::take(&mut self.apart),
        });
        // Sequentially consistent: a reader counts itself before it reads a link, so one that is not
        // seen here finds the link without the node.
        let gone = match READERS.load(Ordering::SeqCst) {
            0 => std::mem::take(&mut state.gone),
            _ => Vec::new(),
        };
        drop(state);
        for memory in gone
            .into_iter()
            .flat_map(|mut gone| std::mem::take(&mut gone.data))
        {
            // SAFETY: by duty 1 of `end`, and no reader is left.
            unsafe { memory.release() };
        }
    }
}

const PAGE: u64 = 4096;

fn headers(base: u64, shape: &ImageShape<'_>) -> Box<[libc::Elf64_Phdr]> {
    let header = |kind: u32, flags: u32, address: u64, [file, memory, align]: [u64; 3]| {
        let offset = address.wrapping_sub(base);
        libc::Elf64_Phdr {
            p_type: kind,
            p_flags: flags,
            p_offset: offset,
            p_vaddr: offset,
            p_paddr: offset,
            p_filesz: file,
            p_memsz: memory,
            p_align: align,
        }
    };
    let load = |memory: &Sealed| {
        let size = memory.len() as u64;
        let (flags, zeros) = match memory.pool() {
            Pool::Code => return None,
            Pool::ReadOnly => (libc::PF_R, 0),
            Pool::ReadWrite => (libc::PF_R | libc::PF_W, shape.zeros as u64),
        };
        let sizes = [size - zeros.min(size), size, PAGE];
        Some(header(libc::PT_LOAD, flags, memory.address(), sizes))
    };
    let load_apart = |memory: &Mapping| {
        let range = memory.range();
        let sizes = [0, range.end - range.start, PAGE];
        header(libc::PT_LOAD, libc::PF_R | libc::PF_W, range.start, sizes)
    };
    let mut headers: Vec<_> = shape.memory.iter().filter_map(load).collect();
    headers.extend(shape.apart.iter().map(load_apart));
    headers.sort_unstable_by_key(|header| header.p_vaddr);
    headers.extend(shape.thread_locals.and_then(|place| {
        let (at, sizes) = tls::template(place)?;
        Some(header(libc::PT_TLS, libc::PF_R, at, sizes))
    }));
    headers.into()
}

/// A reader of the list.
struct Reader(());

impl Reader {
    fn new() -> Reader {
        READERS.fetch_add(1, Ordering::SeqCst);
        Reader(())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        READERS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The state of an iteration, passed through the C library's function.
struct Round {
    callback: Callback,
    data: *mut c_void,
    first: bool,
    size: usize,
}

/// The C library's function, also where its words are overwritten.
static REAL: NextDefinition = NextDefinition::new(NAME);

type ListFunction = unsafe extern "C-unwind" fn(Callback, *mut c_void) -> c_int;

fn real() -> Option<ListFunction> {
    let function = REAL.address();
    // SAFETY: zero, or the C library's function of that name.
    unsafe { std::mem::transmute::<usize, Option<ListFunction>>(function) }
}

/// `dl_iterate_phdr` including the listed images. Takes no lock but the loader's, and allocates
/// nothing.
///
/// # Safety
/// As `dl_iterate_phdr`: `callback` may be called with `data`.
pub(crate) unsafe extern "C-unwind" fn iterate(callback: Callback, data: *mut c_void) -> c_int {
    let Some(function) = real() else { return 0 };
    let _reader = Reader::new();
    let mut round = Round {
        callback,
        data,
        first: true,
        size: 0,
    };
    // SAFETY: by the caller's promise; the round is alive during the call.
    unsafe { function(each, (&raw mut round).cast()) }
}

/// # Safety
/// 1. `info` is a record of the loader's, `data` the round.
unsafe extern "C-unwind" fn each(
    info: *mut libc::dl_phdr_info,
    size: usize,
    data: *mut c_void,
) -> c_int {
    // SAFETY: duty 1; the record has at least the fields of the C library that this was built for.
    let (round, real) = unsafe { (&mut *data.cast::<Round>(), *info) };
    let first = std::mem::replace(&mut round.first, false);
    round.size = size.min(size_of::<libc::dl_phdr_info>());
    let hidden = HIDDEN
        .get()
        .is_some_and(|own| own.contains(&real.dlpi_addr))
        || super::llvm::is_at(real.dlpi_addr);
    if first {
        // The program's executable, or else that of the process.
        // SAFETY: duty 1 of the caller of `iterate`.
        let result = unsafe { round.nodes(&real, true) };
        if result != 0 {
            return result;
        }
    }
    if !hidden {
        // SAFETY: as above.
        let result = unsafe { round.tell(real) };
        if result != 0 {
            return result;
        }
    }
    match first {
        // SAFETY: as above.
        true => unsafe { round.nodes(&real, false) },
        false => 0,
    }
}

impl Round {
    /// Calls back with the images that are the program's executable, or with the others. `own` is
    /// the record of the process's executable.
    ///
    /// # Safety
    /// 1. As for [`iterate`].
    unsafe fn nodes(&self, own: &libc::dl_phdr_info, main: bool) -> c_int {
        let mut at = HEAD.load(Ordering::SeqCst);
        // SAFETY: a node is not freed while there are readers.
        while let Some(node) = unsafe { at.as_ref() } {
            if node.main == main {
                let mut info = *own;
                info.dlpi_addr = node.base;
                info.dlpi_name = node.name.as_ptr();
                info.dlpi_phdr = node.headers.as_ptr();
                info.dlpi_phnum = node.headers.len() as u16;
                (info.dlpi_tls_modid, info.dlpi_tls_data) = match node.tls {
                    None => (0, null_mut()),
                    Some(place) if place.static_offset.is_some() => {
                        (own.dlpi_tls_modid, own.dlpi_tls_data)
                    }
                    Some(place) => {
                        let block = tls::block_of(place.module).cast();
                        (place.module as usize, block)
                    }
                };
                // SAFETY: duty 1.
                let result = unsafe { self.tell(info) };
                if result != 0 {
                    return result;
                }
            }
            at = node.next.load(Ordering::SeqCst);
        }
        0
    }

    /// # Safety
    /// 1. As for [`iterate`].
    unsafe fn tell(&self, mut info: libc::dl_phdr_info) -> c_int {
        info.dlpi_adds += ADDED.load(Ordering::Relaxed);
        info.dlpi_subs += REMOVED.load(Ordering::Relaxed);
        // SAFETY: duty 1; the record is alive during the call.
        unsafe { (self.callback)(&mut info, self.size, self.data) }
    }
}

/// Sets the load addresses of the runtime's files, which are not listed from now on.
pub(crate) fn hide(bases: Vec<u64>) {
    // A process has one program.
    let _ = HIDDEN.set(bases);
}

/// The words of a library to overwrite: those of the list, and if there are any, its words for
/// `__tls_get_addr`, for thread-locals that the list shows.
pub(crate) struct OverwrittenWords {
    /// An unwinder, which searches frames of the runtime, too, or LLVM, which is the runtime's.
    left: bool,
    /// Its words for thread-locals are used by this code to call the C library.
    own: bool,
    lists: bool,
    found: Vec<(&'static CStr, u64)>,
}

impl OverwrittenWords {
    pub(crate) fn of(library: &Loaded) -> OverwrittenWords {
        let left = ["libgcc_s.", "libunwind", "libLLVM"];
        OverwrittenWords {
            left: left.iter().any(|start| library.name().starts_with(start)),
            own: library.holds(write_words as *const () as u64),
            lists: false,
            found: Vec::new(),
        }
    }

    /// Notes a word if it has one of the names.
    pub(crate) fn note(&mut self, word: &loaded::Word<'_>) {
        if let Some(name) = NAMES.into_iter().find(|name| *name == word.name) {
            self.lists |= name == NAME && !self.left;
            if name == NAME || !self.own {
                self.found.push((name, word.address));
            }
        }
    }

    /// Names, addresses and values.
    pub(crate) fn values(self) -> impl Iterator<Item = (&'static CStr, u64, u64)> {
        let found = self.found.into_iter().filter(move |_| self.lists);
        found.map(|(name, address)| match name == NAME {
            true => (name, address, iterate as ListFunction as usize as u64),
            false => (name, address, tls::tls_get_addr as *const () as u64),
        })
    }
}

/// The loader's count of loaded libraries when words were last written.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// Makes all loaded libraries call [`iterate`]. Without a pass, as the loader's lock is waited for.
pub(crate) fn attend() {
    unsafe extern "C-unwind" fn once(
        info: *mut libc::dl_phdr_info,
        _: usize,
        _: *mut c_void,
    ) -> c_int {
        // SAFETY: a live record of the loader's.
        let added = unsafe { (*info).dlpi_adds };
        // Relaxed: read and written under the loader's lock.
        if WRITTEN.swap(added, Ordering::Relaxed) != added {
            write_words();
        }
        1
    }
    // Before the words are overwritten through which this code would find it.
    if let Some(function) = real() {
        // Under the loader's lock nothing is unloaded. SAFETY: a callback that uses none of its
        // arguments.
        unsafe { function(once, null_mut()) };
    }
}

fn write_words() {
    let (loaded, _) = loaded::all();
    for library in &loaded {
        let mut words = OverwrittenWords::of(library);
        // SAFETY: nothing is unloaded meanwhile.
        unsafe { library.each_word(|word| words.note(&word)) };
        let values: Vec<_> = words.values().map(|(_, at, value)| (at, value)).collect();
        // A library whose word cannot be written does not see the images. SAFETY: as above; the
        // functions are extensions of the C library's.
        unsafe { library.write(&values) };
    }
}
