//! Mutations of the index behind `_Unwind_Find_FDE`.

use super::{Mutation, killed, not_modelled};

const INDEX: &str = "runtime/unwind/src/index.rs";
const READERS: &str = "runtime/unwind/src/readers.rs";
const REGISTRY: &str = "runtime/unwind/src/registry.rs";
const LIBGCC: &str = "runtime/unwind/src/libgcc.rs";

/// Why the list of regions is in no model.
const REGIONS: &str = "regions are a list of the process, which loom's atomics cannot be; \
     publishing, finding and freeing one is what the models of the index do with a node";

pub const TABLE: [Mutation; 15] = [
    killed(
        "a lookup reads the head relaxed",
        INDEX,
        [
            "self.table.head(self.page(pc)).load(Ordering::Acquire)",
            "self.table.head(self.page(pc)).load(Ordering::Relaxed)",
        ],
        "model::an_insert_is_seen_whole_or_not_at_all",
    ),
    killed(
        "an object is linked relaxed",
        INDEX,
        [
            "head.store(ptr::from_ref(link).cast_mut(), Ordering::Release);",
            "head.store(ptr::from_ref(link).cast_mut(), Ordering::Relaxed);",
        ],
        "model::an_insert_is_seen_whole_or_not_at_all",
    ),
    killed(
        "an object is unlinked relaxed",
        INDEX,
        [
            "place.store(next.load(Ordering::Relaxed), Ordering::Release);",
            "place.store(next.load(Ordering::Relaxed), Ordering::Relaxed);",
        ],
        "model::what_is_behind_an_unlinked_object_is_seen_whole",
    ),
    killed(
        "an object is freed while somebody reads",
        INDEX,
        [
            "self.unlinked.is_empty() || !readers.quiescent()",
            "self.unlinked.is_empty()",
        ],
        "model::a_lookup_never_reads_a_freed_node",
    ),
    killed(
        "a lookup begins without a fence",
        READERS,
        [
            "        // Partner: the fence in `quiescent`.
        fence(Ordering::SeqCst);",
            "        // Partner: the fence in `quiescent`.",
        ],
        "model::a_lookup_never_reads_a_freed_node",
    ),
    killed(
        "the writer looks for readers without a fence",
        READERS,
        [
            "        // Partner: the fence in `enter`.
        fence(Ordering::SeqCst);",
            "        // Partner: the fence in `enter`.",
        ],
        "model::a_lookup_never_reads_a_freed_node",
    ),
    killed(
        "the writer looks for readers relaxed",
        READERS,
        [
            "stripe.load(Ordering::Acquire) == 0",
            "stripe.load(Ordering::Relaxed) == 0",
        ],
        "model::a_lookup_never_reads_a_freed_node",
    ),
    killed(
        "a lookup ends relaxed",
        READERS,
        [
            "self.stripe.fetch_sub(1, Ordering::Release);",
            "self.stripe.fetch_sub(1, Ordering::Relaxed);",
        ],
        "model::a_lookup_never_reads_a_freed_node",
    ),
    not_modelled(
        "a region is listed relaxed",
        REGISTRY,
        [
            "slot.store(index.as_ptr(), Ordering::Release);",
            "slot.store(index.as_ptr(), Ordering::Relaxed);",
        ],
        REGIONS,
    ),
    not_modelled(
        "a region is unlisted relaxed",
        REGISTRY,
        [
            "slot.store(ptr::null_mut(), Ordering::Release);",
            "slot.store(ptr::null_mut(), Ordering::Relaxed);",
        ],
        REGIONS,
    ),
    not_modelled(
        "a region is found relaxed",
        REGISTRY,
        [
            "let region = slot.load(Ordering::Acquire);",
            "let region = slot.load(Ordering::Relaxed);",
        ],
        REGIONS,
    ),
    not_modelled(
        "a region is asked for an address relaxed",
        REGISTRY,
        [
            "REGIONS.iter().map(|slot| slot.load(Ordering::Acquire))",
            "REGIONS.iter().map(|slot| slot.load(Ordering::Relaxed))",
        ],
        REGIONS,
    ),
    not_modelled(
        "a region is freed while somebody reads",
        REGISTRY,
        [
            "!self.regions.is_empty() && READERS.quiescent()",
            "!self.regions.is_empty()",
        ],
        REGIONS,
    ),
    not_modelled(
        "the next finder is stored relaxed",
        LIBGCC,
        [
            "NEXT.store(next, Ordering::Release);",
            "NEXT.store(next, Ordering::Relaxed);",
        ],
        "a static that holds the address of a library's function, the same for all who look \
         it up",
    ),
    not_modelled(
        "the next finder is read relaxed",
        LIBGCC,
        [
            "NEXT.load(Ordering::Acquire)",
            "NEXT.load(Ordering::Relaxed)",
        ],
        "as for its store",
    ),
];
