//! Tests of calls, frames and jumps to addresses: texts with the parts that tables of single
//! operations lack.

use crate::directed::check;

#[test]
fn memory_as_arguments() {
    let mut texts = Vec::new();
    for size in [
        1, 2, 3, 5, 7, 8, 12, 15, 16, 17, 24, 40, 100, 255, 256, 257, 300, 400,
    ] {
        for align in [1, 8, 16] {
            texts.push(format!(
                "function(i64 %a, f64 %b, i32 %c) -> i64, f64, i32\nb0:\n  \
                 store i64 %a to @data+8 align 8\n  \
                 %r = call @host0(i64 %a, i64 @data memory {size} align {align}, f64 %b, \
                 i64 @far+3 memory 5 align 1, i32 %c) -> i64\n  return %r, %b, %c\n"
            ));
            // More arguments than registers, one of them extended.
            texts.push(format!(
                "function(i64 %a, i16 %c) -> i64, i16\nb0:\n  \
                 %p = offset @data [%c i16 1] 200\n  %q = and i64 %a, 15\n  \
                 %s = offset @data [%q i64 1] 1\n  \
                 %r = call @host0(i64 %a, i64 2, i64 %a, i64 %q, i64 %a, i64 6, i64 7, \
                 i64 %s memory {size} align {align}, i16 %c sext, i64 %a) -> i64\n  \
                 return %r, %c\n"
            ));
        }
        texts.push(format!(
            "function(i64 %p memory {size} align 8, i64 %a) -> i8, i64, i8\nb0:\n  \
             %q = offset %p {}\n  %v = load i8 %q align 1\n  store i8 7 to %q align 1\n  \
             call @host0(i64 %p memory {size} align 8)\n  %w = load i8 %q align 1\n  \
             return %v, %a, %w\n",
            size - 1
        ));
    }
    check("memory as arguments", texts);
}

#[test]
fn dynamic_allocas() {
    let mut texts = Vec::new();
    for size in [1, 3, 8, 24, 4096] {
        for align in [1, 8, 16, 32, 128] {
            for probes in ["", "probes\n"] {
                for arguments in ["", ", i64 1, i64 2, i64 3, i64 4, i64 5, i64 %a, i64 %n"] {
                    texts.push(format!(
                        "function(i64 %a) -> i64, i64, i64\n{probes}b0:\n  \
                         %l = alloca 16 align 8\n  store i64 %a to %l align 8\n  \
                         %m = and i64 %a, 7\n  %n = add i64 %m, 8\n  %s = stacksave\n  \
                         %p = alloca.dynamic %n {size} align {align}\n  \
                         %q = alloca.dynamic 3 8 align 8\n  store i64 %a to %q align 8\n  \
                         call @poke0(ptr %p{arguments})\n  %r = load i64 %p align 8\n  \
                         %t = load i64 %q align 8\n  stackrestore %s\n  \
                         %u = alloca.dynamic %n {size} align {align}\n  \
                         call @poke1(ptr %u)\n  %v = load i64 %l align 8\n  \
                         return %r, %t, %v\n"
                    ));
                }
            }
        }
    }
    check("dynamic allocas", texts);
}

#[test]
fn jumps_to_addresses() {
    let choose = "  %c = and i64 %a, 3\n  %is = icmp eq i64 %c, 0\n  \
                  %x = select i64 %is, &b1, &b2\n  %is2 = icmp eq i64 %c, 1\n  \
                  %y = select i64 %is2, &b3, %x\n";
    let texts = vec![
        format!(
            "function(i64 %a) -> i64\nb0:\n{choose}  indirectjump %y b1, b2, b3\n\
             b1:\n  return 1\nb2:\n  return 2\nb3:\n  return 3\n"
        ),
        // Phis with moves at block entries; both blocks have cycles.
        format!(
            "function(i64 %a, i64 %b) -> i64, i64\nb0:\n{choose}  jump b4\n\
             b4:\n  %i = phi i64 [b0 %a] [b1 %n] [b2 %n2]\n  \
             %j = phi i64 [b0 %b] [b1 %i1] [b2 %k]\n  %t = phi i64 [b0 %y] [b1 &b3] [b2 &b1]\n  \
             indirectjump %t b1, b2, b3\n\
             b1:\n  %i1 = phi i64 [b4 %j]\n  %j1 = phi i64 [b4 %i]\n  %n = add i64 %j1, 5\n  \
             jump b4\n\
             b2:\n  %k = phi i64 [b4 %i]\n  %n2 = xor i64 %j, 77\n  jump b4\n\
             b3:\n  %z = phi i64 [b4 %j]\n  %w = phi i64 [b4 7]\n  %v = phi i64 [b4 %i]\n  \
             %s = add i64 %z, %w\n  return %s, %v\n"
        ),
    ];
    check("jumps to addresses", texts);
}

#[test]
fn threads_and_frames() {
    let texts = vec![
        "function(i64 %a, i64 %b) -> i64, i64\nb0:\n  %t = threadlocal @thread\n  \
         store i64 %a to %t align 8\n  %u = threadlocal @thread\n  %r = load i64 %u align 8\n  \
         return %r, %b\n"
            .to_owned(),
    ];
    check("thread-local variables", texts);
}

#[test]
fn calls_that_are_jumps() {
    let mut texts = Vec::new();
    let list = "i64 %a, f64 %b, i16 %c, i64 %d, i64 %e, i64 %f, i64 %g, i64 %h, i16 %i, i32 %j";
    for to in ["@host0", "at %p", "at %q"] {
        for arguments in [
            "i64 %a, f64 %b, i16 %c, i64 %d, i64 %e, i64 %f, i64 %g, i64 %h, i16 %i, i32 %j",
            "i64 %d, f64 %b, i16 %i sext, i64 %a, i64 %h, i64 %g, i64 %f, i64 %e, i16 %c zext, i32 7",
            "i64 %h, f64 #3ff0000000000000, i16 65000 zext, i64 %r, i64 3, i64 @data, i64 %g, i64 %a, \
             i16 65000 sext, i32 %j sext",
            "i64 1",
        ] {
            texts.push(format!(
                "function({list}) -> i64\nb0:\n  call @host1()\n  %p = offset @host2 0\n  \
                 %r = call @host3() -> i64\n  %m = and i64 %r, 1\n  \
                 %is = icmp eq i64 %m, 0\n  %q = select i64 %is, @host4, @host5\n  \
                 branch %is b1, b2\nb1:\n  return %r\n\
                 b2:\n  %t = call musttail {to}({arguments}) -> i64\n  return %t\n"
            ));
        }
    }
    check("calls that are jumps", texts);
}

#[test]
fn long_numbers_are_passed() {
    let texts = [
        "function(f80 %a, i64 %b) -> f80\nb0:\n  return %a\n",
        "function(f80 %a, f80 %b) -> f80, f80\nb0:\n  return %b, %a\n",
        "function(i64 %b, f80 %a) -> f80, i64\nb0:\n  store f80 %a to @data+16 align 16\n  \
         %r = load f80 @data+16 align 16\n  %m = load i64 @data+16 align 8\n  return %r, %m\n",
        "function(f80 %a, i1 %c, f80 %b) -> f80\nb0:\n  %s = alloca 16 align 16\n  \
         store f80 %a to %s align 16\n  branch %c b1, b2\nb1:\n  store f80 %b to %s align 16\n  \
         jump b2\nb2:\n  %r = load f80 %s align 16\n  return %r\n",
        "function(f80 %a, i1 %c, f80 %b) -> f80, f80\nb0:\n  %r = select f80 %c, %a, %b\n  \
         jump b1\nb1:\n  %x = phi f80 [b0 %r] [b1 %y]\n  %y = phi f80 [b0 %b] [b1 %x]\n  \
         %i = phi i64 [b0 0] [b1 %n]\n  %n = add i64 %i, 1\n  %is = icmp ult i64 %n, 4\n  \
         branch %is b1, b2\nb2:\n  return %x, %y\n",
        "function(f80 %a, f64 %d) -> f80, i64\nb0:\n  %r, %i = call @host0(f80 %a, f64 %d, i64 4, \
         f80 %a) -> f80, i64\n  call @host1() -> f80\n  %q = call @host2(f80 %r) -> f80\n  \
         return %q, %i\n",
    ];
    check("long numbers", texts.map(str::to_owned).into());
}
