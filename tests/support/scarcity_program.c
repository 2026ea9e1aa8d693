// Calls of the driver API in a process that has no memory, or no thread, at the n-th time that it is asked for.
//
//   scarcity_program memory|threads [CALL that is left out]
//
// The program's own malloc and pthread_create stand before those of libc, also for the libraries that it loads. Of each call
// every allocation (thread) of the calling thread fails once, one after the other. The call may fail; the process goes on, and
// what it does next is computed rightly. Prints one line for each call: its name, how many places failed, and the results seen.
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);

static __thread long countdown;  // 0: nothing fails; 1: the next one
static __thread int struck;
static int of_memory;

static int strikes(int memory) {
  if (countdown == 0 || memory != of_memory) return 0;
  if (--countdown > 0) return 0;
  struck = 1;
  return 1;
}

void* malloc(size_t size) {
  if (strikes(1)) {
    errno = ENOMEM;
    return NULL;
  }
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  if (strikes(1)) {
    errno = ENOMEM;
    return NULL;
  }
  return __libc_calloc(count, size);
}
void* realloc(void* old, size_t size) {
  if (strikes(1)) {
    errno = ENOMEM;
    return NULL;
  }
  return __libc_realloc(old, size);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*), void* argument) {
  static int (*real)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  if (real == NULL) *(void**)&real = dlsym(RTLD_NEXT, "pthread_create");
  return strikes(0) ? EAGAIN : real(thread, attributes, start, argument);
}

static const char kernel_text[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry add(.param .u64 out, .param .u32 value)\n{\n"
    ".reg .b32 %r<4>; .reg .b64 %rd<4>;\n"
    "ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [value];\n"
    "mov.u32 %r2, %tid.x; mul.wide.u32 %rd2, %r2, 4; add.s64 %rd3, %rd1, %rd2;\n"
    "ld.global.u32 %r3, [%rd3]; add.u32 %r3, %r3, %r1; st.global.u32 [%rd3], %r3;\nret;\n}\n";

static CUfunction add;
static CUstream stream;
static CUdeviceptr words;

#define MUST(call)                                                     \
  do {                                                                 \
    CUresult result_ = (call);                                         \
    if (result_ != CUDA_SUCCESS) {                                     \
      fprintf(stderr, "%s:%d: %s = %d\n", __FILE__, __LINE__, #call, result_); \
      exit(3);                                                         \
    }                                                                  \
  } while (0)

// ---- the calls: each takes what it made back, so that it can be made again

static CUresult stream_of_its_own(void) {
  CUstream made;
  CUresult result = cuStreamCreate(&made, CU_STREAM_NON_BLOCKING);
  countdown = 0;
  if (result == CUDA_SUCCESS) MUST(cuStreamDestroy(made));
  return result;
}
static CUresult event(void) {
  CUevent made;
  CUresult result = cuEventCreate(&made, 0);
  countdown = 0;
  if (result == CUDA_SUCCESS) MUST(cuEventDestroy(made));
  return result;
}
static CUresult memory(void) {
  CUdeviceptr made;
  CUresult result = cuMemAlloc(&made, 5 << 20);
  countdown = 0;
  if (result == CUDA_SUCCESS) MUST(cuMemFree(made));
  return result;
}
static CUresult memory_in_order(void) {
  CUdeviceptr made;
  CUresult result = cuMemAllocAsync(&made, 1 << 16, stream);
  countdown = 0;
  if (result == CUDA_SUCCESS) MUST(cuMemFreeAsync(made, stream));
  return result;
}
static CUresult managed(void) {
  CUdeviceptr made;
  CUresult result = cuMemAllocManaged(&made, 1 << 16, CU_MEM_ATTACH_GLOBAL);
  countdown = 0;
  if (result == CUDA_SUCCESS) MUST(cuMemFree(made));
  return result;
}
static CUresult pinned(void) {
  void* made;
  CUresult result = cuMemHostAlloc(&made, 1 << 16, CU_MEMHOSTALLOC_PORTABLE);
  countdown = 0;
  if (result == CUDA_SUCCESS) MUST(cuMemFreeHost(made));
  return result;
}
static CUresult pool(void) {
  CUmemoryPool made;
  CUmemPoolProps wanted;
  memset(&wanted, 0, sizeof(wanted));
  wanted.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUresult result = cuMemPoolCreate(&made, &wanted);
  countdown = 0;
  if (result == CUDA_SUCCESS) MUST(cuMemPoolDestroy(made));
  return result;
}
static CUresult module_(void) {
  CUmodule made;
  CUresult result = cuModuleLoadData(&made, kernel_text);
  countdown = 0;
  if (result == CUDA_SUCCESS) MUST(cuModuleUnload(made));
  return result;
}
static CUresult launch(void) {
  unsigned value = 0;
  void* arguments[] = {&words, &value};
  return cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, stream, arguments, NULL);
}
static CUresult copy_in(void) {
  static unsigned zeros[1 << 16];
  CUdeviceptr made;
  countdown = 0;
  return cuMemcpyHtoD(words, zeros, 0) == CUDA_SUCCESS && cuMemAlloc(&made, 4) == CUDA_SUCCESS ? cuMemFree(made)
                                                                                               : CUDA_ERROR_UNKNOWN;
}
static CUresult copy_out(void) {
  static unsigned back[32];
  return cuMemcpyDtoH(back, words, sizeof(back));
}
static CUresult copy_out_behind(void) {
  static unsigned back[32];
  CUresult result = cuMemcpyDtoHAsync(back, words, sizeof(back), stream);
  countdown = 0;
  MUST(cuStreamSynchronize(stream));
  return result;
}
static CUresult wait(void) { return cuStreamSynchronize(stream); }
static void CUDA_CB nothing(void* data) { (void)data; }
static CUresult host_function(void) {
  CUresult result = cuLaunchHostFunc(stream, nothing, NULL);
  countdown = 0;
  MUST(cuStreamSynchronize(stream));
  return result;
}
static CUresult graph(void) {
  CUgraph made;
  CUgraphExec exec;
  CUresult result = cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  long left = countdown;
  if (result == CUDA_SUCCESS) {
    result = launch();
    left = countdown;
    countdown = 0;
    CUresult ended = cuStreamEndCapture(stream, &made);
    countdown = left;
    if (ended != CUDA_SUCCESS) return result != CUDA_SUCCESS ? result : ended;
    if (result == CUDA_SUCCESS) result = cuGraphInstantiate(&exec, made, 0);
    countdown = 0;
    if (result == CUDA_SUCCESS) {
      MUST(cuGraphLaunch(exec, stream));
      MUST(cuGraphExecDestroy(exec));
    }
    MUST(cuGraphDestroy(made));
  }
  return result;
}
static CUresult name_of_device(void) {
  char name[64];
  return cuDeviceGetName(name, sizeof(name), 0);
}

static const struct {
  const char* name;
  CUresult (*call)(void);
} calls[] = {{"stream", stream_of_its_own}, {"event", event}, {"memory", memory}, {"memory_in_order", memory_in_order},
             {"managed", managed}, {"pinned", pinned}, {"pool", pool}, {"module", module_}, {"launch", launch},
             {"copy_in", copy_in}, {"copy_out", copy_out}, {"copy_out_behind", copy_out_behind}, {"wait", wait},
             {"host_function", host_function}, {"graph", graph}, {"name", name_of_device}};

// Nothing fails: what is computed is right. A connection that could not be read from is made anew meanwhile.
static void computes(void) {
  unsigned value = 7, seen[32];
  void* arguments[] = {&words, &value};
  CUresult begun = CUDA_ERROR_UNKNOWN;
  for (int tries = 0; tries < 100; ++tries) {
    begun = cuMemsetD32(words, 35, 32);
    if (begun != CUDA_ERROR_DEVICE_UNAVAILABLE) break;
    usleep(100000);
  }
  MUST(begun);
  MUST(cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, stream, arguments, NULL));
  MUST(cuStreamSynchronize(stream));
  MUST(cuMemcpyDtoH(seen, words, sizeof(seen)));
  for (int n = 0; n < 32; ++n) {
    if (seen[n] != 42) {
      fprintf(stderr, "word %d is %u\n", n, seen[n]);
      exit(4);
    }
  }
}

int main(int count, char** arguments) {
  CUcontext context;
  CUmodule loaded;
  if (count < 2) return 2;
  of_memory = strcmp(arguments[1], "memory") == 0;
  MUST(cuInit(0));
  MUST(cuDevicePrimaryCtxRetain(&context, 0));
  MUST(cuCtxSetCurrent(context));
  MUST(cuModuleLoadData(&loaded, kernel_text));
  MUST(cuModuleGetFunction(&add, loaded, "add"));
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  MUST(cuMemAlloc(&words, 4096));
  for (size_t n = 0; n < sizeof(calls) / sizeof(calls[0]); ++n) {
    if (count > 2 && strcmp(arguments[2], calls[n].name) == 0) continue;
    long places = 0;
    char results[200] = "";
    int last = -1;
    for (long place = 1; place <= 300; ++place) {
      struck = 0;
      countdown = place;
      CUresult result = calls[n].call();
      countdown = 0;
      if ((int)result != last && strlen(results) < 180) sprintf(results + strlen(results), " %d", result);
      last = (int)result;
      if (!struck) {
        MUST(result);
        break;
      }
      ++places;
      (void)cuCtxSynchronize();  // what was posted on behalf of the call that failed may have failed, too
      computes();
    }
    printf("%s %ld%s\n", calls[n].name, places, results);
    fflush(stdout);
  }
  computes();
  printf("ok\n");
  return 0;
}
