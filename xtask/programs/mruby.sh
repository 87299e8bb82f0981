source=mruby
build() {
  rake -j2 all CC="$CC" LD="$CC" AR=llvm-ar-22 CFLAGS='-O1 -std=gnu99'
}
check() {
  rake test CC="$CC" LD="$CC" AR=llvm-ar-22 CFLAGS='-O1 -std=gnu99' >check.log 2>&1
  passed=$(sed -n 's/^ *OK: *\([0-9]*\)/\1/p' check.log | paste -sd+ | bc)
  failed=$(sed -n 's/^ *\(KO\|Crash\): *\([0-9]*\)/\2/p' check.log | paste -sd+ | bc)
  echo "${passed:-0} ${failed:-0}"
}
