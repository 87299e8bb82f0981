source=xz-utils
build() {
  ./configure CC=clang-22 AR=llvm-ar-22 RANLIB=llvm-ranlib-22 NM=llvm-nm-22 CFLAGS=-O1 \
    --disable-shared --disable-nls --disable-doc
  make -j2 CC="$CC"
}
check() {
  make -k check CC="$CC" >check.log 2>&1
  echo "$(grep -c '^PASS:' check.log) $(grep -c '^FAIL:\|^ERROR:' check.log)"
}
