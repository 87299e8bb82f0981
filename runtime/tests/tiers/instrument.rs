//! Hooks at entries and returns get the address that the function's name means, also of a body
//! that came as a replacement.

use uruk::{Jit, Replacement, Tier};

const TIERS: [Tier; 3] = [Tier::Baseline, Tier::Optimized, Tier::Guided];

/// A module whose `f` adds `plus`, with hooks that are asked for by attributes with `suffix`.
fn module(plus: i32, suffix: &str) -> String {
    format!(
        "declare void @__cyg_profile_func_enter(ptr, ptr)
         declare void @__cyg_profile_func_exit(ptr, ptr)
         define i32 @f(i32 %x) #0 {{ %r = add i32 %x, {plus} ret i32 %r }}
         define i32 @g(i32 %x) #0 {{ %r = call i32 @f(i32 %x) ret i32 %r }}
         attributes #0 = {{
           \"instrument-function-entry{suffix}\"=\"__cyg_profile_func_enter\"
           \"instrument-function-exit{suffix}\"=\"__cyg_profile_func_exit\" }}"
    )
}

const HOOKS: &str = "@entered = global ptr null
    @left = global ptr null
    @count = global i32 0
    define void @__cyg_profile_func_enter(ptr %of, ptr %from) {
      store ptr %of, ptr @entered
      %c = load i32, ptr @count
      %n = add i32 %c, 1
      store i32 %n, ptr @count
      ret void }
    define void @__cyg_profile_func_exit(ptr %of, ptr %from) {
      store ptr %of, ptr @left
      ret void }
    define i64 @last_entered() { %p = load i64, ptr @entered ret i64 %p }
    define i64 @last_left() { %p = load i64, ptr @left ret i64 %p }";

#[test]
fn a_body_that_is_replaced_tells_the_address_of_its_name() {
    for suffix in ["", "-inlined"] {
        let jit = Jit::builder().jobs(1).build().expect("a session");
        jit.add_ir("hooks", HOOKS).expect("valid");
        jit.add_ir("m", &module(1, suffix)).expect("valid");
        // SAFETY: the functions above.
        let [f, g] = ["f", "g"].map(|name| unsafe {
            let function = jit.function::<extern "C" fn(i32) -> i32>(name);
            function.expect("typed")
        });
        // SAFETY: as above.
        let [entered, left] = ["last_entered", "last_left"].map(|name| unsafe {
            let function = jit.function::<extern "C" fn() -> u64>(name);
            function.expect("typed")
        });
        let address = |name| jit.lookup(name).expect("defined");
        for plus in [1, 2, 3] {
            if plus > 1 {
                let new = Replacement::ir("new", &module(plus, suffix));
                jit.main().replace(new).expect("replaceable");
            }
            for tier in TIERS {
                for name in ["f", "g"] {
                    jit.compile_at(name, tier).expect("compiles");
                }
                assert_eq!(f.call(10), 10 + plus);
                let told = (entered.call(), left.call());
                assert_eq!(
                    told,
                    (address("f"), address("f")),
                    "{suffix} {plus} {tier:?}"
                );
                assert_eq!(g.call(20), 20 + plus);
                // `f` is inlined, or entered later and left before.
                assert_eq!(left.call(), address("g"), "{suffix} {plus} {tier:?}");
            }
        }
    }
}
