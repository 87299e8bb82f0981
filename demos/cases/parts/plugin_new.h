// What a program and its plugin share.
#include <exception>
#include <string>
#include <vector>
struct PluginError : std::exception {
  int number;
  explicit PluginError(int n) : number(n) {}
  const char *what() const noexcept override { return "from the plugin"; }
};
template <class T> struct Shared {
  static int &count() {
    static int count;
    return count;
  }
};
extern "C" {
std::string *plugin_make();
void plugin_drop(std::string *);
void plugin_throw();
int plugin_shared();
}
