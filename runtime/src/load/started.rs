//! The result of linking an image: its constructors and destructors, and other actions that remain
//! until it starts.

use std::ffi::CString;
use uruk_link::{Init, Linked};

/// The actions that remain for the caller that starts an image.
#[derive(Default)]
pub(crate) struct Started {
    pub(crate) preinit: Vec<u64>,
    /// In running order, as are destructors.
    pub(crate) init: Vec<Init>,
    pub(crate) fini: Vec<Init>,
    /// The index of the file of each linked object.
    pub(crate) files: Vec<usize>,
    /// Words to be filled with the result of a resolver: address of the word, and of the resolver.
    pub(crate) ifuncs: Vec<(u64, u64)>,
    /// Definitions of libraries that the program owns when it runs.
    pub(crate) copied: Vec<CopiedDefinition>,
}

impl Started {
    pub(crate) fn of(linked: &Linked) -> Started {
        let ifuncs = linked.ifuncs.iter();
        Started {
            preinit: linked.preinit.iter().map(|init| init.address).collect(),
            init: linked.init.clone(),
            fini: linked.fini.clone(),
            files: Vec::new(),
            ifuncs: ifuncs.map(|ifunc| (ifunc.word, ifunc.resolver)).collect(),
            copied: Vec::new(),
        }
    }

    /// The file that requests a constructor or destructor.
    pub(crate) fn file(&self, init: &Init) -> usize {
        self.files.get(init.object).copied().unwrap_or(usize::MAX)
    }
}

/// A definition that libraries must use instead of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CopiedDefinition {
    /// The name in the program's objects.
    pub(crate) name: CString,
    pub(crate) content: Content,
}

/// The kind of a [`CopiedDefinition`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    /// A variable, with its place and size in the library, and all names it has there.
    Variable {
        from: u64,
        size: u64,
        aliases: Vec<CString>,
    },
    /// A function, whose address is that of an entry of the program.
    Function,
}
