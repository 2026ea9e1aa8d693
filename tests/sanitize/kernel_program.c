/* kernel_program PTX LAUNCHES: launches the kernel `k` of that file, which takes the address of 64 words, with one
   block of 64 threads, again and again until one fails. Prints the last wait's result and the sum of the words. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef int Call();
static void* cuda;

static Call* find(const char* name) {
  Call* const call = (Call*)dlsym(cuda, name);
  if (call == NULL) {
    fprintf(stderr, "%s is not there\n", name);
    exit(1);
  }
  return call;
}

static void check(const char* name, int result) {
  if (result == 0) return;
  fprintf(stderr, "%s: %d\n", name, result);
  exit(1);
}

int main(int count, char** arguments) {
  static char ptx[1 << 16];
  uint32_t words[64] = {0};
  uint64_t memory = 0, sum = 0;
  void *context = NULL, *module = NULL, *kernel = NULL, *parameters[] = {&memory};
  FILE* const file = count == 3 ? fopen(arguments[1], "r") : NULL;
  if (file == NULL || fread(ptx, 1, sizeof ptx - 1, file) == 0 || fclose(file) != 0) return 2;
  cuda = dlopen("libcuda.so.1", RTLD_NOW);
  if (cuda == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  check("cuInit", find("cuInit")(0));
  check("cuDevicePrimaryCtxRetain", find("cuDevicePrimaryCtxRetain")(&context, 0));
  check("cuCtxSetCurrent", find("cuCtxSetCurrent")(context));
  check("cuModuleLoadData", find("cuModuleLoadData")(&module, ptx));
  check("cuModuleGetFunction", find("cuModuleGetFunction")(&kernel, module, "k"));
  check("cuMemAlloc", find("cuMemAlloc_v2")(&memory, (size_t)256));
  check("cuMemsetD32", find("cuMemsetD32_v2")(memory, 0, (size_t)64));
  int result = 0;
  for (int n = atoi(arguments[2]); n > 0 && result == 0; --n) {
    check("cuLaunchKernel", find("cuLaunchKernel")(kernel, 1, 1, 1, 64, 1, 1, 0, NULL, parameters, NULL));
    result = find("cuCtxSynchronize")();
  }
  if (result == 0) check("cuMemcpyDtoH", find("cuMemcpyDtoH_v2")(words, memory, sizeof words));
  for (int n = 0; n < 64; ++n) sum += words[n];
  printf("%d %llu\n", result, (unsigned long long)sum);
  return 0;
}
