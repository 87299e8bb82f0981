source=redis
build() {
  make -C src -j2 CC="$CC" AR=llvm-ar-22 RANLIB=llvm-ranlib-22 MALLOC=libc OPTIMIZATION=-O1 DEBUG=
}
check() {
  TERM=dumb ./runtest --clients 2 --single unit/type/string --single unit/type/list \
    --single unit/type/hash --single unit/expire --single unit/scripting >check.log 2>&1
  echo "$(grep -ac '\[ok\]' check.log) $(grep -ac '\[err\]\|\[exception\]' check.log)"
}
