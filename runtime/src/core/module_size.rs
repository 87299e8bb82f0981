//! Memory of a module in the allocator, for reports.

use std::collections::HashMap;

use uruk_base::allocated::{of_arc, of_block, of_map, of_vec};
use uruk_codegen::{FactStore, ModulePlan};

use super::Module;

impl Module {
    /// Bytes that the allocator took for the module's records, without the bytes of its bitcode and
    /// without its constants.
    pub(crate) fn bytes(&self) -> usize {
        let definitions = self.definitions.get();
        let names = definitions.into_iter().flat_map(HashMap::keys);
        let types = self.types.get().into_iter().flatten();
        of_arc::<Module>()
            + self.readers.bytes()
            + of_arc::<ModulePlan>()
            + self.plan().bytes()
            + of_arc::<FactStore>()
            + self.facts().bytes()
            + self.constants.bytes_of_table()
            + definitions.map_or(0, of_map)
            + names.map(|name| of_block(name.len())).sum::<usize>()
            + self.types.get().map_or(0, of_vec)
            + types.map(|text| of_block(text.len() + 16)).sum::<usize>()
    }
}
