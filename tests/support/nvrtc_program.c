// Asks NVRTC for machine code, as many C and C++ programs do, and runs it. The libraries are declared here: their
// headers are not needed to call them.
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int nvrtcCreateProgram(void**, const char*, const char*, int, const char**, const char**);
int nvrtcCompileProgram(void*, int, const char**);
int nvrtcGetCUBINSize(void*, size_t*);
int nvrtcGetCUBIN(void*, char*);
int nvrtcDestroyProgram(void**);
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void**, int);
int cuCtxSetCurrent(void*);
int cuModuleLoadData(void**, const void*);
int cuModuleGetFunction(void**, void*, const char*);
int cuMemAlloc_v2(unsigned long long*, size_t);
int cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                   void**);
int cuMemcpyDtoH_v2(void*, unsigned long long, size_t);

#define CHECK(call)                                  \
  do {                                               \
    const int result_ = (call);                      \
    if (result_ != 0) {                              \
      printf("%s is %d\n", #call, result_);          \
      return 1;                                      \
    }                                                \
  } while (0)

int main(int count, char** arguments) {
  const char* source = "extern \"C\" __global__ void square(int* out) { out[threadIdx.x] = threadIdx.x * threadIdx.x; }";
  void* program = NULL;
  CHECK(nvrtcCreateProgram(&program, source, "square.cu", 0, NULL, NULL));
  CHECK(nvrtcCompileProgram(program, count - 1, (const char**)arguments + 1));
  size_t size = 0;
  CHECK(nvrtcGetCUBINSize(program, &size));
  char* code = malloc(size);
  CHECK(nvrtcGetCUBIN(program, code));
  CHECK(nvrtcDestroyProgram(&program));
  void *context = NULL, *module = NULL, *function = NULL;
  unsigned long long memory = 0;
  CHECK(cuInit(0));
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuModuleLoadData(&module, code));
  CHECK(cuModuleGetFunction(&function, module, "square"));
  CHECK(cuMemAlloc_v2(&memory, 32 * sizeof(int)));
  void* parameters[] = {&memory};
  CHECK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL));
  int out[32];
  CHECK(cuMemcpyDtoH_v2(out, memory, sizeof(out)));
  printf("%s %d\n", memcmp(code, "\177ELF", 4) == 0 ? "machine code" : "PTX", out[31]);
  return 0;
}
