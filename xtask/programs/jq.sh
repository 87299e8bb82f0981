source=jq
# jq 1.6 asks for functions in ways that clang takes for errors by now.
build() {
  autoreconf -fi
  ./configure CC="clang-22 -std=gnu89" AR=llvm-ar-22 RANLIB=llvm-ranlib-22 NM=llvm-nm-22 \
    CFLAGS=-O1 --disable-maintainer-mode --disable-docs --disable-shared
  make -j2 CC="$CC" CPPFLAGS='-DIEEE_8087 -D_GNU_SOURCE'
}
check() {
  NO_VALGRIND=1 tests/jqtest >check.log 2>&1
  sed -n 's/^\([0-9]*\) of \([0-9]*\) tests passed.*/\1 \2/p' check.log |
    while read -r passed all; do echo "$passed $((all - passed))"; done
}
