//! The ranks of all locks that are not leaves. `docs/threads.md` has the same table, with the locks
//! that are taken under each; a test in `xtask` compares them.

use super::order::Rank;

macro_rules! ranks {
    ($($number:literal $rank:ident $name:literal,)*) => {
        $(
            #[doc = concat!("The rank of `", $name, "`.")]
            #[derive(Debug)]
            pub enum $rank {}

            impl Rank for $rank {
                const NUMBER: u8 = $number;
                const NAME: &'static str = $name;
            }
        )*

        /// Each rank with the name of its lock.
        pub const ALL: &[(u8, &str)] = &[$(($number, $name)),*];
    };
}

ranks! {
    1 CodeDirectoryLinked "CodeDirectory.linked",
    1 EvictionState "Eviction.state",
    1 Undefined "Undefined",
    1 CodeDirectoryProcess "CodeDirectory.process",
    1 ConstantsHeld "Constants.held",
    1 Registered "REGISTERED",
    1 LoaderSchedule "Loader.schedule",
    1 CodeDirectoryDumpAsm "CodeDirectory.dump_asm",
    1 LedgerLive "Ledger.live",
    1 WaiterOwn "Waiter.own",
    1 ThreadTimer "Thread.timer",
    1 Modules "Modules",
    1 HostFunctionsLazy "HostFunctions.lazy",
    2 PublicationsStale "Publications.stale",
    2 WaitingStubs "WaitingStubs.stubs",
    2 VersionsFixed "Versions.fixed",
    2 LoaderDestructors "Loader.destructors",
    3 Gate "GATE.state",
    3 ReclaimState "Reclaim.state",
    3 SpeculationMind "Speculation.mind",
    3 ProfilesState "Profiles.state",
    4 SamplingState "Sampling.state",
    4 SessionState "Session.state",
    4 PoolInner "Pool.inner",
    4 Resting "RESTING",
    4 ToolsOpen "Tools.open",
    4 StackSearchKnown "StackSearch.known",
    4 EventsListeners "Events.listeners",
    4 Lives "Lives",
    5 TierStateControl "TierState.control",
    5 SampleMapNative "SampleMap.native",
    5 BondsState "Bonds.state",
    6 CountsChunks "Counts.chunks",
    6 ContinuationsForbidden "Continuations.forbidden",
    6 ContinuationsWatched "Continuations.watched",
    7 CodeDirectoryFunctions "CodeDirectory.functions",
    7 VersionsRecords "Versions.records",
    7 Heap "Inner.state",
}
