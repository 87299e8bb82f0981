//! Records of a version, made before it runs: later searches, and the first sample in it, find it.

use std::sync::Arc;

use uruk_base::FunctionId;
use uruk_codegen::Labels;
use uruk_reclaim::Fixed;
use uruk_tiering::{Facts, Late, Publication};

use super::build::Built;
use crate::code::blocks::NewBlock;
use crate::code::records::Version;
use crate::version::compiler::Compiler;
use crate::version::request::Made;
use crate::version::request::Request;

impl Compiler {
    /// The report of a version before it is published.
    pub(crate) fn made(&self, request: Request, built: &Built) -> Made {
        Made {
            version: request.version,
            compiling: built.compiling,
            linking: built.linking,
            facts: Facts {
                instructions: built.compiled.instructions,
                loops: built.compiled.loops,
                nested: built.compiled.nested,
                calls: built.compiled.calls,
            },
            counts: built.compiled.counts,
            callees: built.compiled.callees,
            object: built.object,
            words: built.words.clone(),
            publication: Publication::Dropped(Late::GivenUp),
        }
    }

    /// Records a version before it can run, so that the first sample in it, and later searches,
    /// find it.
    pub(crate) fn file_version(&self, request: Request, built: Built, depends: Arc<[FunctionId]>) {
        let code = built.code.range();
        self.sampled.insert(code, request.function, request.version);
        self.keep(request, built, depends);
    }

    /// Adds the record of a compiled version.
    fn keep(&self, request: Request, built: Built, depends: Arc<[FunctionId]>) {
        let fixed = match built.compiled.labels {
            Labels::Fixed => Some(Fixed::Labels),
            _ => built.code.moves.is_none().then_some(Fixed::Referenced),
        };
        let code = built.code.range();
        let bodies = self.bodies_in_sight(request.function, &built);
        let (function, version) = (Some(request.function), request.version);
        self.notes.live(NewBlock {
            function,
            version,
            depends: Arc::clone(&depends),
            fixed,
            code: built.code,
        });
        let mut records = self.versions.lock();
        let record = records.entry(request.function.index()).or_default();
        if record.built.is_empty() {
            // Most functions only ever have one version.
            record.built.reserve_exact(1);
        }
        record.built.push(Version {
            id: request.version,
            tier: request.tier,
            entry: built.entry,
            body_end: built.body_end,
            code,
            bytes: built.bytes,
            time: built.compiling + built.linking,
            samples: 0,
            depends,
            bodies,
            unit: built.unit,
            escapes: built.escapes,
            object: built.object,
        });
    }
}
