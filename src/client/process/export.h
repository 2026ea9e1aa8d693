// The symbols that the library exports; all others are hidden.
#pragma once

#define GPUPOOL_EXPORT __attribute__((visibility("default")))
