#include "inline_shared.h"
ALL(object)
