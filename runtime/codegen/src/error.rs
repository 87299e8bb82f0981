//! Errors between bitcode and object, with the operands.

use uruk_leaving::Reason;

/// An error of loading, extracting or emitting. The session stays usable.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CodegenError {
    /// LLVM's library is not there.
    #[error(transparent)]
    Missing(#[from] uruk_late::Missing),
    /// The bytes are not bitcode that this LLVM reads.
    #[error("{module}: not readable as LLVM bitcode: {message}")]
    Load {
        /// Name of the input.
        module: String,
        /// LLVM's message.
        message: String,
    },
    /// The bytes are not a well-formed stream of bitcode; LLVM did not see them.
    #[error(
        "{module}: damaged bitcode: {message} (at bit {bit}{})",
        .block.map(|block| format!(", in block {block}")).unwrap_or_default()
    )]
    Malformed {
        /// Name of the input.
        module: String,
        /// Where, in bits from the beginning of the stream.
        bit: u64,
        /// Number of the innermost block, as LLVM counts kinds of blocks.
        block: Option<u32>,
        /// Description of the damage.
        message: String,
    },
    /// A file of several modules, where one module is expected.
    #[error("{module}: {count} modules in one file; `llvm-modextract` takes them apart")]
    SeveralModules {
        /// Name of the input.
        module: String,
        /// The number of modules.
        count: usize,
    },
    /// IR text with a syntax error.
    #[error("{module}:{message}")]
    Syntax {
        /// Name of the input.
        module: String,
        /// LLVM's message, including its prefix: `LINE:COLUMN: error: ..`.
        message: String,
    },
    /// The module is for another machine.
    #[error("{module}: target triple `{triple}` is not x86_64 Linux")]
    Target {
        /// Name of the input.
        module: String,
        /// The module's triple.
        triple: String,
    },
    /// The module lays out data as another machine does.
    #[error("{module}: data layout `{layout}` is not that of x86_64 Linux: `{part}`")]
    Layout {
        /// Name of the input.
        module: String,
        /// The module's layout.
        layout: String,
        /// The differing part of it.
        part: String,
    },
    /// A body could not be read, or is not valid IR.
    #[error("{module}: function `{function}`: {message}")]
    Body {
        /// Name of the input.
        module: String,
        /// The function.
        function: String,
        /// LLVM's message.
        message: String,
    },
    /// The symbol to be compiled, or asked about, is no function.
    #[error("{module}: symbol {number} is no function")]
    NoFunction {
        /// Name of the input.
        module: String,
        /// Number of the symbol.
        number: u32,
    },
    /// The embedder's transform failed, or produced invalid IR.
    #[error("{module}: `{unit}`: its transform: {message}")]
    Transform {
        /// Name of the input.
        module: String,
        /// The unit being compiled.
        unit: String,
        /// The transform's message, or LLVM's.
        message: String,
    },
    /// LLVM reported an error while it emitted code.
    #[error("{module}: `{unit}` does not compile: {message}")]
    Emit {
        /// Name of the input.
        module: String,
        /// The unit being compiled.
        unit: String,
        /// LLVM's messages, joined.
        message: String,
    },
    /// A construct that extraction does not know.
    #[error("{module}: `{unit}` uses {construct}, which cannot be extracted")]
    Unsupported {
        /// Name of the input.
        module: String,
        /// The unit being compiled.
        unit: String,
        /// The construct.
        construct: String,
    },
    /// A function has no continuation at the head of that loop.
    #[error("{module}: `{unit}` has no continuation there: {reason}")]
    NoContinuation {
        /// Name of the input.
        module: String,
        /// The function.
        unit: String,
        /// Why.
        reason: Reason,
    },
    /// LLVM was needed within [`fatal::refused`](crate::fatal::refused).
    #[error("LLVM is needed where it is refused")]
    Refused,
    /// LLVM reported an error it does not return from; its thread sleeps for ever.
    #[error("{module}: `{unit}`: fatal error in LLVM: {message}")]
    Fatal {
        /// Name of the input.
        module: String,
        /// The unit being compiled.
        unit: String,
        /// LLVM's message.
        message: String,
    },
    /// The compile was [cancelled](crate::Cancellation); the reader is as it was before.
    #[error("{module}: the compile of `{unit}` was cancelled")]
    Cancelled {
        /// Name of the input.
        module: String,
        /// The unit being compiled.
        unit: String,
    },
    /// LLVM has no usable x86-64 target.
    #[error("no x86-64 target in this LLVM: {message}")]
    NoTarget {
        /// LLVM's message.
        message: String,
    },
}

impl CodegenError {
    /// True if the compile ended because it was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        matches!(self, CodegenError::Cancelled { .. })
    }

    /// True if LLVM was needed where it is [refused](crate::fatal::refused).
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(self, CodegenError::Refused)
    }
}

/// Why work on a unit was not done.
pub(crate) enum Stop {
    /// LLVM's message.
    Failed(String),
    /// The compile was cancelled.
    Cancelled,
}

impl From<String> for Stop {
    fn from(message: String) -> Stop {
        Stop::Failed(message)
    }
}
