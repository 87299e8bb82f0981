//! Symbols of the process that a program may use: an allow-list of libraries.
//!
//! Lookups go library by library, never through the global scope: that would also offer the symbols
//! of this executable and of LLVM. Thread-locals of libraries are answered with libc's own (module,
//! offset) pair. A lookup takes no lock of the dynamic loader, except for thread-locals and unique
//! symbols ([`exports`](crate::host::exports)).

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_int, c_void};
use std::path::Path;

use uruk_base::locks::Mutex;

use crate::error::Error;
use crate::host::executable::Executable;
use crate::host::exports::{Export, ExportedVariable, Scope, ask_loader, dynamic_of};
use crate::host::tls::{offset_of, thread_pointer};

/// Libraries a compiler driver links by default for C, C++ and Rust programs.
const DEFAULT_LIBRARIES: [&str; 5] = [
    "libc.so.6",
    "libm.so.6",
    "libstdc++.so.6",
    "libgcc_s.so.1",
    "libatomic.so.1",
];

/// The libraries in which symbols are looked up, in order.
pub(crate) struct Process {
    libraries: Vec<Library>,
    /// Thread-locals that were found: a module that needs one is checked when it is added, so that
    /// its compiles need not call the loader.
    thread_locals: Mutex<HashMap<Box<str>, LibraryThreadLocal>>,
}

/// The place of a library's thread-local variable.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LibraryThreadLocal {
    /// The pair for `__tls_get_addr`.
    pub(crate) module: u64,
    pub(crate) offset: u64,
    /// Its offset from the thread pointer, if that is the same in all threads.
    pub(crate) fixed: Option<i64>,
}

/// A loaded library, which stays.
pub(crate) struct Library {
    handle: *mut c_void,
    /// `None` if it has no readable tables: the loader is called.
    scope: Option<Scope>,
    /// Unexported definitions of the executable, for a library that includes them.
    executable: Option<Executable>,
}

impl Library {
    /// Opens a library whose symbols other libraries do not see.
    ///
    /// # Errors
    /// [`Error::Library`] with the loader's message.
    pub(crate) fn open(path: &Path) -> Result<Library, Error> {
        open(&path.display().to_string(), libc::RTLD_LOCAL)
    }

    /// Opens a library by file name or path, whose names the process has from then on. Its constructors
    /// run, and may call code of the session: the caller holds no lock.
    ///
    /// # Errors
    /// [`Error::Library`] with the loader's message.
    pub(crate) fn open_global(name: &str) -> Result<Library, Error> {
        open(name, libc::RTLD_GLOBAL)
    }

    /// The exports of the process, and the definitions of its executable.
    ///
    /// # Errors
    /// The executable cannot be read.
    pub(crate) fn process() -> Result<Library, Error> {
        Ok(Library {
            handle: libc::RTLD_DEFAULT,
            scope: None,
            executable: Some(Executable::read()?),
        })
    }

    /// The address of `name`, or `None`. Functions chosen at load time (ifuncs) are
    /// already resolved by the loader.
    pub(crate) fn find(&self, name: &str) -> Option<u64> {
        self.find_exported(&CString::new(name).ok()?)
            .or_else(|| self.executable.as_ref()?.find(name))
    }

    /// Whether the name is that of a thread-local; false without readable tables.
    fn has_thread_local(&self, name: &CStr) -> bool {
        let scope = self.scope.as_ref();
        scope.is_some_and(|scope| scope.is_thread_local(name))
    }

    fn find_exported(&self, name: &CStr) -> Option<u64> {
        let found = match &self.scope {
            Some(scope) => scope.find(name)?,
            None => Export::AskLoader,
        };
        if let Export::At(address) = found {
            return Some(address);
        }
        if self.has_thread_local(name) {
            // Before `dlsym`, for which the loader would give the library dynamic storage.
            offset_of(name);
        }
        // SAFETY: a live handle.
        unsafe { ask_loader(self.handle, name) }
    }
}

// SAFETY: a handle of the dynamic loader, whose functions are thread-safe.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Process {
    /// Opens the default libraries that exist here. Definitions of libraries that were loaded
    /// before them (`LD_PRELOAD`) come first, as they do for the loader.
    pub(crate) fn new() -> Process {
        let preloaded = std::env::var("LD_PRELOAD").unwrap_or_default();
        let preloaded = preloaded.split([' ', ':']).filter(|name| !name.is_empty());
        let preloaded = preloaded.filter_map(|name| open(name, libc::RTLD_NOLOAD).ok());
        let defaults = DEFAULT_LIBRARIES.iter();
        let defaults = defaults.filter_map(|name| open(name, libc::RTLD_GLOBAL).ok());
        let libraries = preloaded.chain(defaults).collect();
        Process {
            libraries,
            thread_locals: Mutex::default(),
        }
    }

    /// Adds a library of [`Library::open_global`].
    pub(crate) fn add(&mut self, library: Library) {
        self.libraries.push(library);
    }

    /// The address of `name`, or `None`. Functions chosen at load time (ifuncs) are
    /// already resolved by the loader.
    pub(crate) fn find(&self, name: &str) -> Option<u64> {
        if let Some((plain, version)) = name.split_once('@') {
            return match version.strip_prefix('@') {
                // The default version.
                Some(_) => self.find(plain),
                None => self.find_version(plain, version),
            };
        }
        let name = CString::new(name).ok()?;
        let mut libraries = self.libraries.iter();
        libraries.find_map(|library| library.find_exported(&name))
    }

    /// The address of `name` in a version (`memcpy@GLIBC_2.2.5`), or `None`.
    fn find_version(&self, name: &str, version: &str) -> Option<u64> {
        let (name, version) = (CString::new(name).ok()?, CString::new(version).ok()?);
        let found = self.libraries.iter().map(|library| {
            // SAFETY: a live handle, and C strings.
            unsafe { libc::dlvsym(library.handle, name.as_ptr(), version.as_ptr()) as u64 }
        });
        found.into_iter().find(|&address| address != 0)
    }

    /// The variable `name`, if a library exports it.
    pub(crate) fn variable(&self, name: &str) -> Option<ExportedVariable> {
        let name = CString::new(name).ok()?;
        let scopes = self
            .libraries
            .iter()
            .filter_map(|library| library.scope.as_ref());
        let mut scopes = scopes.filter(|scope| scope.find(&name).is_some());
        let mut variable = scopes.next()?.variable(&name)?;
        // A unique symbol has one place in the process, which the loader knows.
        let address = self
            .libraries
            .iter()
            .find_map(|one| one.find_exported(&name))?;
        if variable.address != address {
            variable.address = address;
            variable.names = vec![name];
        }
        Some(variable)
    }

    /// The dynamic sections of the libraries, which identify them.
    pub(crate) fn dynamics(&self) -> Vec<u64> {
        let libraries = self.libraries.iter();
        // SAFETY: handles that stay open.
        libraries
            .filter_map(|library| unsafe { dynamic_of(library.handle) })
            .collect()
    }

    /// The place of a library's thread-local variable.
    pub(crate) fn find_tls(&self, name: &str) -> Option<LibraryThreadLocal> {
        let known = || self.thread_locals.lock();
        if let Some(&found) = known().get(name) {
            return Some(found);
        }
        // For a thread-local, `dlsym` answers the calling thread's address, which also ensures that
        // the thread has the library's block.
        let address = self.find(name)?;
        let mut search = TlsSearch {
            address,
            found: None,
        };
        // SAFETY: the callback gets back the pointer to `search`, alive here.
        unsafe {
            libc::dl_iterate_phdr(Some(match_tls_block), (&raw mut search).cast::<c_void>());
        }
        let (module, offset) = search.found?;
        let plain = CString::new(name).ok()?;
        let mut libraries = self.libraries.iter();
        let fixed = libraries.any(|it| it.has_thread_local(&plain));
        let fixed = fixed.then(|| offset_of(&plain)).flatten();
        let fixed = fixed.filter(|fixed| address as i64 == thread_pointer() + fixed);
        let found = LibraryThreadLocal {
            module,
            offset,
            fixed,
        };
        known().insert(name.into(), found);
        Some(found)
    }
}

/// Whether an address is in code. Reads the kernel's map: the dynamic loader's lock may be held by
/// a thread that waits for this one.
pub(crate) fn is_code(address: u64) -> bool {
    let text = uruk_files::read_to_string("/proc/thread-self/maps").unwrap_or_default();
    let number = |text| u64::from_str_radix(text, 16).ok();
    text.lines().any(|line| {
        let mut words = line.split(' ');
        let bounds = words.next().and_then(|bounds| bounds.split_once('-'));
        let bounds = bounds.and_then(|(start, end)| Some(number(start)?..number(end)?));
        let inside = bounds.is_some_and(|bounds| bounds.contains(&address));
        inside && words.next().is_some_and(|rights| rights.contains('x'))
    })
}

struct TlsSearch {
    address: u64,
    found: Option<(u64, u64)>,
}

unsafe extern "C" fn match_tls_block(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    data: *mut c_void,
) -> c_int {
    // SAFETY: the loader passes a live record; `data` is the search of `find_tls`.
    let (info, search) = unsafe { (&*info, &mut *data.cast::<TlsSearch>()) };
    let block = info.dlpi_tls_data as u64;
    // SAFETY: `dlpi_phdr` points at `dlpi_phnum` headers.
    let headers =
        unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let size = headers
        .iter()
        .find(|h| h.p_type == libc::PT_TLS)
        .map_or(0, |h| h.p_memsz);
    if block == 0 || search.address < block || search.address >= block + size {
        return 0;
    }
    search.found = Some((info.dlpi_tls_modid as u64, search.address - block));
    1
}

fn open(name: &str, scope: c_int) -> Result<Library, Error> {
    let fail = |message: String| Error::Library {
        name: name.to_owned(),
        message,
    };
    let c = CString::new(name).map_err(|_| fail(String::from("name holds a zero byte")))?;
    // SAFETY: a C string; opening runs the library's constructors, as linking would.
    let handle = unsafe { libc::dlopen(c.as_ptr(), libc::RTLD_LAZY | scope) };
    if handle.is_null() {
        // SAFETY: after a failure the loader has a message for this thread.
        let message = unsafe { CStr::from_ptr(libc::dlerror()) };
        return Err(fail(message.to_string_lossy().into_owned()));
    }
    // SAFETY: just opened, and never closed.
    let scope = unsafe { Scope::of(handle) };
    Ok(Library {
        handle,
        scope,
        executable: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_library_symbols_and_not_ours() {
        let process = Process::new();
        assert!(process.find("printf").is_some());
        assert!(process.find("cos").is_some());
        assert!(process.find("LLVMContextCreate").is_none());
        assert!(process.find("no_such_symbol_anywhere").is_none());
    }

    #[test]
    fn versions_of_a_name_are_told_apart() {
        let process = Process::new();
        let old = process.find("memcpy@GLIBC_2.2.5").expect("an old version");
        assert_ne!(Some(old), process.find("memcpy"));
        assert_eq!(process.find("memcpy@@GLIBC_2.14"), process.find("memcpy"));
        assert_eq!(process.find("memcpy@GLIBC_1.0"), None);
    }

    #[test]
    fn a_missing_library_is_an_error_with_its_name() {
        let error = Library::open_global("libnone-such.so")
            .err()
            .expect("missing");
        assert!(error.to_string().contains("libnone-such.so"), "{error}");
    }
}
