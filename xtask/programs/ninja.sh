source=ninja-build
build() {
  python3 -c 'import os; os.makedirs("made", exist_ok=True)'
  for file in src/*.cc; do
    case $file in
      *win32* | *-win32.cc | *msvc* | src/minidump* | src/getopt* | *_perftest.cc | src/hash_collision*) continue ;;
      src/browse.cc | src/includes_normalize* | *.in.cc) continue ;;
    esac
    "$CXX" -O1 -std=c++14 -DNINJA_HAVE_BROWSE=0 -Isrc -c "$file" -o "made/$(basename "$file" .cc).o"
  done
  rm -f made/ninja.o
  "$CXX" -o ninja_test made/*.o -lgtest -lpthread
}
# Its tests write their names over each other, and at last whether all passed.
check() {
  ./ninja_test 2>&1 | tr '\r' '\n' >check.log
  all=$(sed -n 's/^\[[0-9]*\/\([0-9]*\)\].*/\1/p' check.log | tail -1)
  failed=$(grep -ac '^\*\*\* Failure' check.log)
  [ "$(tail -1 check.log)" = passed ] || [ "$failed" -gt 0 ] || failed=$all
  echo "$((${all:-0} - ${failed:-0})) ${failed:-0}"
}
