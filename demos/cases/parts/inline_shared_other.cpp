#include "inline_shared.h"
ALL(other)
