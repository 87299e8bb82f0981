// A plugin in C++ that allocates in its constructors, and shares types with the program.
#include "../parts/plugin_new.h"
#include <cstdio>
static std::vector<std::string> kept = {"made before main of the plugin, and long enough", "two"};
std::string *plugin_make() { return new std::string(kept[0] + kept[1]); }
void plugin_drop(std::string *text) { delete text; }
void plugin_throw() { throw PluginError(7); }
int plugin_shared() { return ++Shared<int>::count(); }
