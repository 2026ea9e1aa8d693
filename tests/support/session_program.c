/* A CUDA program that lives long and does what it is told, one command per line on standard input: for tests that hold
 * a model of every byte against it. It answers each with one line, `ok ...` or `error NUMBER TEXT` (the CUresult, the
 * client runtime's last sentence), and goes on. Numbers are decimal, addresses too; sizes are words of four bytes.
 *
 * Nothing waits for the device but `read`, `sync` and `drain`: what was posted and is not known to be done is the
 * interesting part.
 */
#include <cuda.h>
#include <inttypes.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

extern const char *gpupool_last_message(void);
extern int gpupool_counters(char *buffer, size_t size, int reset_peak);
extern int gpupool_drain(int timeout_ms);
extern int gpupool_detach(void);

enum { STREAMS = 3, MODULES = 4 };

/* `step`: x = 1664525 x + 1013904223. `mix`: to = 3 to + from. `table`: to[i] += words[i % 256], a variable of the
 * module. `keep`: words[i] = from[i]. `endless`: until the word is not 0. */
static const char ptx[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".visible .global .align 4 .b8 words[1024];\n"
    ".visible .entry step(.param .u64 to, .param .u64 from, .param .u32 n)\n{\n"
    "  .reg .pred %p<2>; .reg .b32 %r<9>; .reg .b64 %d<6>;\n"
    "  ld.param.u64 %d1, [to]; ld.param.u32 %r1, [n];\n"
    "  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;\n"
    "  mad.lo.s32 %r5, %r2, %r3, %r4; setp.ge.u32 %p1, %r5, %r1; @%p1 bra DONE;\n"
    "  mul.wide.u32 %d2, %r5, 4; add.s64 %d3, %d1, %d2; ld.global.u32 %r6, [%d3];\n"
    "  mul.lo.u32 %r7, %r6, 1664525; add.u32 %r8, %r7, 1013904223; st.global.u32 [%d3], %r8;\nDONE: ret;\n}\n"
    ".visible .entry mix(.param .u64 to, .param .u64 from, .param .u32 n)\n{\n"
    "  .reg .pred %p<2>; .reg .b32 %r<9>; .reg .b64 %d<6>;\n"
    "  ld.param.u64 %d1, [to]; ld.param.u64 %d4, [from]; ld.param.u32 %r1, [n];\n"
    "  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;\n"
    "  mad.lo.s32 %r5, %r2, %r3, %r4; setp.ge.u32 %p1, %r5, %r1; @%p1 bra DONE;\n"
    "  mul.wide.u32 %d2, %r5, 4; add.s64 %d3, %d1, %d2; add.s64 %d5, %d4, %d2;\n"
    "  ld.global.u32 %r6, [%d3]; ld.global.u32 %r7, [%d5];\n"
    "  mul.lo.u32 %r6, %r6, 3; add.u32 %r8, %r6, %r7; st.global.u32 [%d3], %r8;\nDONE: ret;\n}\n"
    ".visible .entry table(.param .u64 to, .param .u64 from, .param .u32 n)\n{\n"
    "  .reg .pred %p<2>; .reg .b32 %r<9>; .reg .b64 %d<6>;\n"
    "  ld.param.u64 %d1, [to]; ld.param.u32 %r1, [n];\n"
    "  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;\n"
    "  mad.lo.s32 %r5, %r2, %r3, %r4; setp.ge.u32 %p1, %r5, %r1; @%p1 bra DONE;\n"
    "  mul.wide.u32 %d2, %r5, 4; add.s64 %d3, %d1, %d2; ld.global.u32 %r6, [%d3];\n"
    "  and.b32 %r7, %r5, 255; mul.wide.u32 %d4, %r7, 4; mov.u64 %d5, words; add.s64 %d4, %d4, %d5;\n"
    "  ld.global.u32 %r7, [%d4]; add.u32 %r8, %r6, %r7; st.global.u32 [%d3], %r8;\nDONE: ret;\n}\n"
    ".visible .entry keep(.param .u64 to, .param .u64 from, .param .u32 n)\n{\n"
    "  .reg .pred %p<2>; .reg .b32 %r<9>; .reg .b64 %d<6>;\n"
    "  ld.param.u64 %d1, [from]; ld.param.u32 %r1, [n];\n"
    "  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;\n"
    "  mad.lo.s32 %r5, %r2, %r3, %r4; setp.ge.u32 %p1, %r5, %r1; @%p1 bra DONE;\n"
    "  mul.wide.u32 %d2, %r5, 4; add.s64 %d3, %d1, %d2; ld.global.u32 %r6, [%d3];\n"
    "  mov.u64 %d5, words; add.s64 %d4, %d2, %d5; st.global.u32 [%d4], %r6;\nDONE: ret;\n}\n"
    ".visible .entry endless(.param .u64 to, .param .u64 from, .param .u32 n)\n{\n"
    "  .reg .pred %p<2>; .reg .b32 %r<2>; .reg .b64 %d<2>;\n"
    "  ld.param.u64 %d1, [to];\nAGAIN: ld.volatile.global.u32 %r1, [%d1];\n"
    "  setp.eq.u32 %p1, %r1, 0; @%p1 bra AGAIN; ret;\n}\n";

static const char *const kernels[] = {"step", "mix", "table", "keep", "endless"};
enum { ENDLESS = 4, KERNELS = sizeof(kernels) / sizeof(kernels[0]) };

static CUcontext context;
static CUstream streams[STREAMS];
static CUstream apart; /* of the endless kernel: what others are given does not wait for it */
static CUevent events[STREAMS];
static CUmodule modules[MODULES];
static CUfunction functions[MODULES][KERNELS];
static uint32_t *host;
static size_t host_words;

static void answer(CUresult result) {
  if (result == CUDA_SUCCESS) {
    puts("ok");
    return;
  }
  const char *said = gpupool_last_message();
  printf("error %d ", result);
  for (; said != NULL && *said != '\0'; ++said) putchar(*said == '\n' ? ' ' : *said);
  putchar('\n');
}

static void answer_number(CUresult result, uint64_t value) {
  if (result == CUDA_SUCCESS) {
    printf("ok %" PRIu64 "\n", value);
  } else {
    answer(result);
  }
}

static uint32_t *host_memory(size_t words) {
  if (words > host_words) {
    free(host);
    host = malloc(words * 4);
    host_words = words;
    if (host == NULL) exit(2);
  }
  return host;
}

/* What a model makes again from (seed, place): word i is a product of seed + i. */
static const uint32_t *pattern(uint32_t seed, size_t words) {
  uint32_t *const out = host_memory(words);
  for (size_t i = 0; i < words; ++i) out[i] = (seed + (uint32_t)i) * 2654435761u;
  return out;
}

/* `words`: filled with the address of the variable, which then cannot change any more; NULL leaves it unknown. */
static CUresult load(unsigned module, CUdeviceptr *words) {
  CUresult result = cuModuleLoadData(&modules[module], ptx);
  for (int kernel = 0; result == CUDA_SUCCESS && kernel < KERNELS; ++kernel) {
    result = cuModuleGetFunction(&functions[module][kernel], modules[module], kernels[kernel]);
  }
  if (result == CUDA_SUCCESS && words != NULL) result = cuModuleGetGlobal(words, NULL, modules[module], "words");
  return result;
}

static CUresult start(void) {
  CUresult result = cuInit(0);
  if (result == CUDA_SUCCESS) result = cuDevicePrimaryCtxRetain(&context, 0);
  if (result == CUDA_SUCCESS) result = cuCtxSetCurrent(context);
  if (result == CUDA_SUCCESS) result = cuStreamCreate(&apart, CU_STREAM_NON_BLOCKING);
  for (int n = 0; result == CUDA_SUCCESS && n < STREAMS; ++n) {
    result = cuStreamCreate(&streams[n], CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS) result = cuEventCreate(&events[n], CU_EVENT_DISABLE_TIMING);
  }
  return result;
}

/* What is given to stream `to` from now on waits for what was given to `from`. */
static CUresult chain(unsigned from, unsigned to) {
  const CUresult result = cuEventRecord(events[from], streams[from]);
  return result != CUDA_SUCCESS ? result : cuStreamWaitEvent(streams[to], events[from], 0);
}

static CUresult launch(unsigned kernel, CUstream stream, unsigned module, CUdeviceptr to, CUdeviceptr from,
                       uint32_t words) {
  void *arguments[] = {&to, &from, &words};
  return cuLaunchKernel(functions[module][kernel], (words + 127) / 128, 1, 1, 128, 1, 1, 0, stream, arguments, NULL);
}

/* The same launch, `times` over, through a captured graph. */
static CUresult launch_graph(unsigned kernel, CUstream stream, unsigned module, CUdeviceptr to, CUdeviceptr from,
                             uint32_t words, unsigned times) {
  CUgraph graph = NULL;
  CUgraphExec executable = NULL;
  CUresult result = cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  if (result != CUDA_SUCCESS) return result;
  for (unsigned n = 0; result == CUDA_SUCCESS && n < times; ++n) {
    result = launch(kernel, stream, module, to, from, words);
  }
  const CUresult ended = cuStreamEndCapture(stream, &graph);
  if (result == CUDA_SUCCESS) result = ended;
  if (result == CUDA_SUCCESS) result = cuGraphInstantiate(&executable, graph, 0);
  if (result == CUDA_SUCCESS) result = cuGraphLaunch(executable, stream);
  if (executable != NULL) {
    const CUresult destroyed = cuGraphExecDestroy(executable);
    if (result == CUDA_SUCCESS) result = destroyed;
  }
  if (graph != NULL) {
    const CUresult destroyed = cuGraphDestroy(graph);
    if (result == CUDA_SUCCESS) result = destroyed;
  }
  return result;
}

static void read_words(unsigned stream, CUdeviceptr from, size_t words) {
  uint32_t *const out = host_memory(words);
  CUresult result = cuMemcpyDtoHAsync(out, from, words * 4, streams[stream]);
  if (result == CUDA_SUCCESS) result = cuStreamSynchronize(streams[stream]);
  answer_number(result, words);
  if (result == CUDA_SUCCESS) fwrite(out, 4, words, stdout);
}

/* A step of a program that trains: launches, then a wait. The longest and the mean of `times`, in microseconds. */
static CUresult timed_steps(CUdeviceptr to, uint32_t words, unsigned times) {
  double longest = 0, sum = 0;
  for (unsigned n = 0; n < times; ++n) {
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    CUresult result = launch(0, streams[0], 0, to, to, words);
    if (result == CUDA_SUCCESS) result = launch(0, streams[0], 0, to, to, words);
    if (result == CUDA_SUCCESS) result = cuStreamSynchronize(streams[0]);
    if (result != CUDA_SUCCESS) return result;
    clock_gettime(CLOCK_MONOTONIC, &end);
    const double took = (double)(end.tv_sec - begin.tv_sec) * 1e6 + (double)(end.tv_nsec - begin.tv_nsec) * 1e-3;
    host_memory(times)[n] = (uint32_t)took;
    sum += took;
    if (took > longest) longest = took;
  }
  printf("ok %u %.1f %.1f\n", times, sum / times, longest);
  fwrite(host, 4, times, stdout);
  return CUDA_SUCCESS;
}

static void obey(const char *name, const uint64_t *a) {
  CUdeviceptr address = 0;
  CUresult result;
  if (strcmp(name, "start") == 0) {
    answer(start());
  } else if (strcmp(name, "load") == 0) {
    result = load((unsigned)a[0], a[1] != 0 ? &address : NULL);
    answer_number(result, address);
  } else if (strcmp(name, "unload") == 0) {
    answer(cuModuleUnload(modules[a[0]]));
  } else if (strcmp(name, "alloc") == 0) {
    result = cuMemAlloc(&address, a[0] * 4);
    answer_number(result, address);
  } else if (strcmp(name, "free") == 0) {
    answer(cuMemFree(a[0]));
  } else if (strcmp(name, "poolalloc") == 0) {
    result = cuMemAllocAsync(&address, a[1] * 4, streams[a[0]]);
    answer_number(result, address);
  } else if (strcmp(name, "poolfree") == 0) {
    answer(cuMemFreeAsync(a[1], streams[a[0]]));
  } else if (strcmp(name, "write") == 0) {
    answer(cuMemcpyHtoDAsync(a[1], pattern((uint32_t)a[2], a[3]), a[3] * 4, streams[a[0]]));
  } else if (strcmp(name, "fill") == 0) {
    answer(cuMemsetD32Async(a[1], (unsigned)a[2], a[3], streams[a[0]]));
  } else if (strcmp(name, "copy") == 0) {
    answer(cuMemcpyDtoDAsync(a[1], a[2], a[3] * 4, streams[a[0]]));
  } else if (strcmp(name, "launch") == 0) {
    answer(launch((unsigned)a[1], streams[a[0]], (unsigned)a[2], a[3], a[4], (uint32_t)a[5]));
  } else if (strcmp(name, "graph") == 0) {
    answer(launch_graph((unsigned)a[1], streams[a[0]], (unsigned)a[2], a[3], a[4], (uint32_t)a[5], (unsigned)a[6]));
  } else if (strcmp(name, "endless") == 0) {
    answer(launch(ENDLESS, apart, 0, a[0], a[0], 1));
  } else if (strcmp(name, "finish") == 0) {
    answer(cuMemsetD32Async(a[0], 1, 1, streams[0]));
  } else if (strcmp(name, "chain") == 0) {
    answer(chain((unsigned)a[0], (unsigned)a[1]));
  } else if (strcmp(name, "read") == 0) {
    read_words((unsigned)a[0], a[1], a[2]);
  } else if (strcmp(name, "sync") == 0) {
    answer(cuCtxSynchronize());
  } else if (strcmp(name, "drain") == 0) {
    answer((CUresult)gpupool_drain((int)a[0]));
  } else if (strcmp(name, "detach") == 0) {
    answer((CUresult)gpupool_detach());
  } else if (strcmp(name, "steps") == 0) {
    result = timed_steps(a[0], (uint32_t)a[1], (unsigned)a[2]);
    if (result != CUDA_SUCCESS) answer(result);
  } else if (strcmp(name, "memory") == 0) {
    size_t unused = 0, total = 0;
    result = cuMemGetInfo(&unused, &total);
    answer_number(result, total);
  } else {
    printf("error 0 unknown command %s\n", name);
  }
}

static void interrupted(int signal) { (void)signal; }

int main(void) {
  char line[256], name[16];
  signal(SIGINT, interrupted); /* as an interpreter does: the program goes on */
  while (fgets(line, sizeof(line), stdin) != NULL) {
    uint64_t a[8] = {0};
    if (sscanf(line, "%15s %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, name,
               &a[0], &a[1], &a[2], &a[3], &a[4], &a[5], &a[6]) < 1) {
      continue;
    }
    if (strcmp(name, "end") == 0) return 0;
    if (strcmp(name, "flush") == 0) { /* the end of a batch: answers are buffered until here */
      fflush(stdout);
      continue;
    }
    obey(name, a);
  }
  return 0;
}
