// A template-heavy program: containers, algorithms, variants, ranges of the library.
// flags: -std=c++20
// gate: C
#include <algorithm>
#include <any>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

struct Shape { virtual ~Shape() = default; virtual double area() const = 0; };
struct Circle : Shape { double r; explicit Circle(double r) : r(r) {} double area() const override { return 3.0 * r * r; } };
struct Box : Shape { double a, b; Box(double a, double b) : a(a), b(b) {} double area() const override { return a * b; } };

int main() {
  std::mt19937 random(12345);
  std::vector<unsigned> numbers(5000);
  std::generate(numbers.begin(), numbers.end(), [&] { return random() % 10000; });
  std::map<unsigned, int> ordered;
  std::unordered_map<std::string, int> hashed;
  for (unsigned n : numbers) {
    ordered[n % 100]++;
    hashed[std::to_string(n % 77)]++;
  }
  std::sort(numbers.begin(), numbers.end(), std::greater<>());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  std::printf("%zu %u %d %d\n", numbers.size(), numbers[10], ordered[42], hashed["42"]);
  std::set<std::string> words{"lagash", "uruk", "ur", "eridu"};
  std::string joined;
  for (const auto &w : words) joined += w + ' ';
  std::printf("%s%zu\n", joined.c_str(), joined.find("uruk"));
  std::vector<std::shared_ptr<Shape>> shapes;
  for (int i = 1; i < 10; i++) {
    if (i % 2) shapes.push_back(std::make_shared<Circle>(i));
    else shapes.push_back(std::make_shared<Box>(i, i + 1));
  }
  auto total = std::accumulate(shapes.begin(), shapes.end(), 0.0,
                               [](double sum, const auto &s) { return sum + s->area(); });
  std::printf("%g %ld\n", total, shapes[0].use_count());
  std::variant<int, std::string, double> v = std::string("text");
  std::printf("%zu %s\n", v.index(), std::get<std::string>(v).c_str());
  v = 2.5;
  std::printf("%g\n", std::visit([](const auto &x) -> double {
    if constexpr (std::is_same_v<std::decay_t<decltype(x)>, std::string>) return 0; else return x; }, v));
  std::optional<int> nothing;
  std::any any = 5;
  std::printf("%d %d\n", nothing.value_or(7), std::any_cast<int>(any));
  try { (void)std::any_cast<double>(any); } catch (const std::bad_any_cast &) { std::printf("bad any cast\n"); }
  std::printf("%d\n", std::chrono::steady_clock::now().time_since_epoch().count() > 0);
}
