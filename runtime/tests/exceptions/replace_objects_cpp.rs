//! Objects of C++: groups, tables of virtual functions, constructors that share an address,
//! and exceptions that pass through replaced functions.

use crate::clang;

use uruk::{Error, Jit, ReplaceError, Replacement};

type Answer = extern "C" fn() -> i32;

/// An object whose parts all say `value`; `made` of the first lives on.
fn object(value: i32, more: &str, flags: &[&str]) -> Vec<u8> {
    let source = format!(
        "struct Base {{ int own; Base(); virtual int f(); {more} }};
        Base::Base() : own({value}) {{}}
        int Base::f() {{ return own * 1000 + {value}; }}
        template <class T> T twice(T x) {{ static T last; last += 1; return x * 2 + {value}; }}
        struct Guard {{ int &at; ~Guard() {{ at += {value}; }} }};
        static int count;
        int thrower(int x) {{ Guard guard{{count}}; if (x > 2) throw x + {value}; return x; }}
        Base *made = new (__builtin_malloc(64)) Base;
        extern \"C\" int virtual_call() {{ return made->f(); }}
        extern \"C\" int caught() {{ try {{ return thrower(5); }} catch (int x) {{ return x; }} }}
        extern \"C\" int templates() {{ return twice(10); }}
        extern \"C\" int apart() {{ return typeid(*made) == typeid(Base); }}"
    );
    let source = format!(
        "#define size_t __SIZE_TYPE__
        inline void *operator new(size_t, void *p) noexcept {{ return p; }}
        namespace std {{ class type_info {{ public: virtual ~type_info(); const char *name;
            bool operator==(const type_info &o) const {{ return name == o.name; }} }}; }}
        {source}"
    );
    clang::compile("replace_objects_cpp", "part.cpp", &source, flags)
}

fn call(jit: &Jit, name: &str) -> i32 {
    let address = jit.lookup(name).expect("defined");
    // SAFETY: functions of the object, of this type.
    let function = unsafe { std::mem::transmute::<u64, Answer>(address) };
    function()
}

fn answers(jit: &Jit) -> [i32; 4] {
    ["virtual_call", "caught", "templates", "apart"].map(|name| call(jit, name))
}

#[test]
fn objects_of_cpp_are_replaced_as_a_whole() {
    for flags in [
        &["-O0"][..],
        &["-O2"],
        &["-O2", "-fPIC", "-ffunction-sections"],
    ] {
        let jit = Jit::builder().jobs(1).build().expect("a session");
        jit.main()
            .add_object("first.o", object(1, "", flags))
            .expect("valid");
        // SAFETY: the constructor of `made`.
        unsafe { jit.initialize() }.expect("initialized");
        assert_eq!(answers(&jit), [1001, 6, 21, 1], "{flags:?}");
        for value in 2..=3 {
            let new = Replacement::object("next.o", object(value, "", flags));
            let replaced = jit.main().replace(new).expect("whole");
            assert!(replaced.globals_kept.iter().any(|name| name == "made"));
            // The object that was made keeps its contents and its table, which leads to
            // new code.
            let wanted = [1000 + value, 5 + value, 20 + value, 1];
            assert_eq!(answers(&jit), wanted, "{flags:?}");
        }
        jit.rollback().expect("kept");
        assert_eq!(answers(&jit), [1002, 7, 22, 1]);
        // Another virtual function: the table grows, and code that is not replaced, and
        // objects that exist, have the old one.
        let grown = object(9, "virtual int g() { return 1; }", flags);
        let refused = jit.main().replace(Replacement::object("grown.o", grown));
        let Err(Error::Replace(cause)) = refused else {
            panic!("{refused:?}")
        };
        let table = matches!(&*cause, ReplaceError::Global { global, .. } if global == "_ZTV4Base");
        assert!(table, "{cause}");
        assert_eq!(answers(&jit), [1002, 7, 22, 1]);
    }
}
