//! Settings of the layers between input and link.

use std::sync::Arc;

use crate::api::builder::JitBuilder;
use crate::version::layers::{LinkPass, ObjectCache, ObjectTransform, Transform};
use crate::version::partition::Partition;

impl JitBuilder {
    /// Changes the IR of each function before it is optimized ([layers](crate::Transform)). The
    /// last call wins.
    #[must_use]
    pub fn transform_ir(mut self, transform: Transform) -> JitBuilder {
        self.layers.ir = Some(transform);
        self
    }

    /// Changes each object before it is linked; runs after the transforms given before.
    #[must_use]
    pub fn transform_objects(mut self, transform: ObjectTransform) -> JitBuilder {
        self.layers.objects.push(transform);
        self
    }

    /// Adds a pass over each object that is linked; runs after the passes given before.
    #[must_use]
    pub fn link_pass(mut self, pass: LinkPass) -> JitBuilder {
        self.layers.links.push(pass);
        self
    }

    /// Selects the functions that are compiled together. The caller of the first does not wait for
    /// the others.
    #[must_use]
    pub fn partition(mut self, partition: Partition) -> JitBuilder {
        self.layers.partition = partition;
        self
    }

    /// Keeps compiled functions between runs.
    #[must_use]
    pub fn object_cache(mut self, cache: Arc<dyn ObjectCache>) -> JitBuilder {
        self.layers.cache = Some(cache);
        self
    }
}
