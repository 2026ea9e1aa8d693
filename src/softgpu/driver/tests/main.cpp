// The engine turns SIGSEGV of a kernel into an error of the launch; the test framework must not catch it
// first.
#define DOCTEST_CONFIG_NO_POSIX_SIGNALS
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdlib>

// The driver reads its settings once, at the first call: two devices, and little enough memory to run out of.
int main(int count, char** arguments) {
  setenv("GPUPOOL_SOFTGPU_DEVICES", "2", 1);
  setenv("GPUPOOL_SOFTGPU_MEMORY_MIB", "256", 1);
  unsetenv("GPUPOOL_SOFTGPU_COMPUTE_CAPABILITY");
  return doctest::Context(count, arguments).run();
}
