//! The compiler of a session: its settings, its counts, and its access to the rooms above.

use std::ops::Deref;
use std::sync::{Arc, OnceLock, Weak};

use crate::code::directory::CodeDirectory;
use crate::fork::gate;
use crate::version::baseline::Compilers;
use crate::version::choices::VersionChoices;
use crate::version::counts::Counts;
use crate::version::engines::{Engines, NoEngines};
use crate::version::layers::Layers;
use crate::version::under_way::UnderWay;

/// Makes versions; see [`version`](crate::version).
pub(crate) struct Compiler {
    pub(crate) layers: Layers,
    pub(crate) baseline: Compilers,
    pub(crate) choices: VersionChoices,
    pub(crate) counts: Counts,
    pub(crate) under_way: UnderWay,
    engines: OnceLock<Weak<dyn Engines>>,
    code: Arc<CodeDirectory>,
    end: gate::End,
}

/// The code is below the compiler.
impl Deref for Compiler {
    type Target = Arc<CodeDirectory>;

    fn deref(&self) -> &Arc<CodeDirectory> {
        &self.code
    }
}

/// Takes a pass: the fields take locks of the session when they are dropped.
impl Drop for Compiler {
    fn drop(&mut self) {
        self.end.begin();
    }
}

impl Compiler {
    /// The compiler of the session whose code is in `code`.
    pub(crate) fn new(
        layers: Layers,
        baseline: Compilers,
        choices: VersionChoices,
        code: Arc<CodeDirectory>,
    ) -> Arc<Compiler> {
        Arc::new(Compiler {
            layers,
            baseline,
            choices,
            counts: Counts::default(),
            under_way: UnderWay::default(),
            engines: OnceLock::new(),
            code,
            end: gate::End::default(),
        })
    }

    /// Sets the rooms above, once.
    pub(crate) fn serve(&self, engines: Weak<dyn Engines>) {
        // A session sets it before it compiles.
        let _ = self.engines.set(engines);
    }

    /// The code, for callers that hold a layer above it.
    pub(crate) fn directory(&self) -> &Arc<CodeDirectory> {
        &self.code
    }

    /// The rooms above; neutral answers once the session ends.
    pub(crate) fn engines(&self) -> Arc<dyn Engines> {
        let engines = self.engines.get().and_then(Weak::upgrade);
        engines.unwrap_or_else(|| Arc::new(NoEngines))
    }
}
