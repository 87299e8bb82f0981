// Streams: the standard ones, formatting, parsing, string streams, files, locale-free
// manipulators, and output of static destructors.
// stdin: 12 0x1f 3.25 word\na whole line\n
// stderr: same
// gate: C
#include <cstdio>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <string>

struct Last {
  ~Last() { std::cout << "from a static destructor" << std::endl; }
} last;

struct Point { int x, y; };
static std::ostream &operator<<(std::ostream &out, const Point &p) {
  return out << '(' << p.x << ", " << p.y << ')';
}

int main() {
  int decimal, hexadecimal;
  double real;
  std::string word, line;
  std::cin >> decimal >> std::hex >> hexadecimal >> std::dec >> real >> word;
  std::cin.ignore();
  std::getline(std::cin, line);
  std::cout << decimal << ' ' << hexadecimal << ' ' << real << ' ' << word << " [" << line << "] "
            << std::cin.good() << '\n';
  std::cout << std::setw(8) << std::setfill('*') << std::left << 42 << std::right << std::setw(6)
            << std::hex << std::showbase << 255 << std::dec << ' ' << std::fixed
            << std::setprecision(3) << 3.14159 << ' ' << std::scientific << 12345.678 << ' '
            << std::boolalpha << true << ' ' << Point{1, 2} << '\n';
  std::printf("printf between\n");
  std::cerr << "to cerr " << Point{3, 4} << '\n';
  std::clog << "to clog" << std::endl;
  std::ostringstream text;
  for (int i = 0; i < 5; i++) text << i * i << ',';
  std::istringstream parse(text.str());
  int sum = 0, n;
  char comma;
  while (parse >> n >> comma) sum += n;
  std::cout << text.str() << ' ' << sum << '\n';
  std::ifstream missing("/no/such/file");
  std::cout << missing.is_open() << ' ' << bool(missing) << std::endl;
  std::string nothing;
  std::cout << bool(std::cin >> nothing) << ' ' << std::cin.eof() << '\n';
}
