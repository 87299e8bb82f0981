//! The chapters of the guide, whose code is compiled and run as tests of documentation.
//!
//! Only those see this file: the chapters lie outside of the package.

macro_rules! chapters {
    ($($name:ident $file:literal),* $(,)?) => {$(
        #[doc = include_str!(concat!("../../docs/guide/", $file))]
        mod $name {}
    )*};
}

chapters! {
    first_function "first-function.md",
    a_language "a-language.md",
    budgets "budgets.md",
    debugging "debugging.md",
    any_order "any-order.md",
    hot_swap "hot-swap.md",
    tuning "tuning.md",
    safety "safety.md",
    coming_from "coming-from.md",
}
