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
check() {
  ./ninja_test >check.log 2>&1
  passed=$(sed -n 's/.*PASSED.*\] \([0-9]*\) tests.*/\1/p' check.log)
  failed=$(sed -n 's/.*FAILED.*\] \([0-9]*\) tests.*/\1/p' check.log)
  echo "${passed:-0} ${failed:-0}"
}
