/* A program as a compiler for `<<<>>>` would make it, written by hand: it registers a fat binary with PTX, a kernel and
 * a variable, and launches through the runtime API. Prints one line for each thing that worked. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern void **__cudaRegisterFatBinary(void *fatCubin);
extern void __cudaRegisterFatBinaryEnd(void **handle);
extern void __cudaUnregisterFatBinary(void **handle);
extern void __cudaRegisterFunction(void **handle, const char *hostFun, char *deviceFun, const char *deviceName,
                                   int thread_limit, void *tid, void *bid, void *bDim, void *gDim, int *wSize);
extern void __cudaRegisterVar(void **handle, char *hostVar, char *deviceAddress, const char *deviceName, int ext,
                              size_t size, int constant, int global);
extern unsigned __cudaPushCallConfiguration(struct dim3 grid, struct dim3 block, size_t shared, cudaStream_t stream);
extern cudaError_t __cudaPopCallConfiguration(struct dim3 *grid, struct dim3 *block, size_t *shared, void *stream);
extern cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function);
extern cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, struct dim3 grid, struct dim3 block, void **arguments,
                                      size_t shared, cudaStream_t stream);

/* out[i] = factor * in[i], and one launch more is counted. */
static const char ptx[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".visible .global .align 4 .u32 factor = 3;\n"
    ".visible .entry scale(.param .u64 out, .param .u64 in, .param .u32 n)\n{\n"
    "  .reg .pred %p<2>; .reg .b32 %r<9>; .reg .b64 %rd<8>;\n"
    "  ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [in]; ld.param.u32 %r1, [n];\n"
    "  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;\n"
    "  mad.lo.s32 %r5, %r2, %r3, %r4; setp.ge.u32 %p1, %r5, %r1; @%p1 bra DONE;\n"
    "  mul.wide.u32 %rd3, %r5, 4; add.s64 %rd4, %rd2, %rd3; ld.global.u32 %r6, [%rd4];\n"
    "  ld.global.u32 %r7, [factor]; mul.lo.s32 %r8, %r6, %r7;\n"
    "  add.s64 %rd5, %rd1, %rd3; st.global.u32 [%rd5], %r8;\nDONE: ret;\n}\n";

/* The container: a header, then one entry with a header of its own. */
static struct {
  unsigned magic;
  unsigned short version, header_size;
  unsigned long long entries_size;
  unsigned short kind, entry_version;
  unsigned entry_header_size;
  unsigned long long payload_size;
  unsigned compressed_size, options;
  unsigned minor_major, architecture, name_offset, name_size;
  unsigned long long flags, zero, uncompressed_size;
  char payload[(sizeof(ptx) + 7) / 8 * 8];
} image;

static struct {
  unsigned magic, version;
  const void *data;
  void *more;
} wrapper = {0x466243b1, 1, &image, 0};

static unsigned factor_on_host;

/* What a compiler makes of `scale<<<grid, block, shared, stream>>>(out, in, n)`: the call site pushes, this stub pops. */
static void scale(unsigned *out, const unsigned *in, unsigned n) {
  struct dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
  void *arguments[] = {&out, &in, &n};
  if (__cudaPopCallConfiguration(&grid, &block, &shared, &stream) != cudaSuccess) exit(3);
  cudaLaunchKernel((const void *)scale, grid, block, arguments, shared, stream);
}

static void check(const char *what, cudaError_t error) {
  if (error == cudaSuccess) return;
  printf("%s: %s, %s\n", what, cudaGetErrorName(error), cudaGetErrorString(error));
  exit(1);
}

static void register_all(void) {
  image.magic = 0xba55ed50;
  image.version = 1;
  image.header_size = 16;
  image.entries_size = sizeof(image) - 16;
  image.kind = 1;
  image.entry_version = 0x101;
  image.entry_header_size = 64;
  image.payload_size = sizeof(image.payload);
  image.architecture = 75;
  memcpy(image.payload, ptx, sizeof(ptx));
  void **handle = __cudaRegisterFatBinary(&wrapper);
  __cudaRegisterFunction(handle, (const char *)scale, (char *)"scale", "scale", -1, 0, 0, 0, 0, 0);
  __cudaRegisterVar(handle, (char *)&factor_on_host, (char *)"factor", "factor", 0, sizeof(unsigned), 0, 0);
  __cudaRegisterFatBinaryEnd(handle);
}

enum { N = 1000 };

static unsigned long long sum(const unsigned *values) {
  unsigned long long total = 0;
  for (int n = 0; n < N; ++n) total += values[n];
  return total;
}

static int compute(void) {
  static unsigned values[N], result[N];
  for (unsigned n = 0; n < N; ++n) values[n] = n;
  const struct dim3 grid = {4, 1, 1}, block = {256, 1, 1}, wrong = {4096, 1, 1};
  unsigned *in = 0, *out = 0, factor = 0, n = N;
  int version = 0;
  check("version", cudaRuntimeGetVersion(&version));
  printf("runtime %d\n", version / 1000);
  check("malloc", cudaMalloc((void **)&in, sizeof(values)));
  check("malloc", cudaMalloc((void **)&out, sizeof(values)));
  check("copy", cudaMemcpy(in, values, sizeof(values), cudaMemcpyHostToDevice));

  __cudaPushCallConfiguration(grid, block, 0, 0);
  scale(out, in, N);
  check("launch", cudaGetLastError());
  check("copy", cudaMemcpy(result, out, sizeof(result), cudaMemcpyDefault));
  printf("launch %llu\n", sum(result));

  check("from symbol", cudaMemcpyFromSymbol(&factor, &factor_on_host, sizeof(factor), 0, cudaMemcpyDeviceToHost));
  printf("variable %u\n", factor);
  factor = 5;
  check("to symbol", cudaMemcpyToSymbol(&factor_on_host, &factor, sizeof(factor), 0, cudaMemcpyHostToDevice));

  cudaStream_t stream;
  cudaEvent_t start, stop;
  cudaKernel_t kernel;
  void *arguments[] = {&out, &in, &n};
  float milliseconds = -1;
  check("stream", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  check("event", cudaEventCreate(&start));
  check("event", cudaEventCreate(&stop));
  check("record", cudaEventRecord(start, stream));
  check("kernel", __cudaGetKernel(&kernel, (const void *)scale));
  check("launch", __cudaLaunchKernel(kernel, grid, block, arguments, 0, stream));
  check("record", cudaEventRecord(stop, stream));
  check("copy", cudaMemcpyAsync(result, out, sizeof(result), cudaMemcpyDeviceToHost, stream));
  check("wait", cudaStreamSynchronize(stream));
  check("elapsed", cudaEventElapsedTime(&milliseconds, start, stop));
  printf("stream %llu %s\n", sum(result), milliseconds >= 0 ? "timed" : "not timed");

  cudaGraph_t graph;
  cudaGraphExec_t executable;
  check("capture", cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  check("launch", cudaLaunchKernel((const void *)scale, grid, block, arguments, 0, stream));
  check("capture", cudaStreamEndCapture(stream, &graph));
  check("instantiate", cudaGraphInstantiate(&executable, graph, 0));
  factor = 7;
  check("to symbol", cudaMemcpyToSymbol(&factor_on_host, &factor, sizeof(factor), 0, cudaMemcpyHostToDevice));
  check("graph", cudaGraphLaunch(executable, stream));
  check("wait", cudaStreamSynchronize(stream));
  check("copy", cudaMemcpy(result, out, sizeof(result), cudaMemcpyDeviceToHost));
  printf("graph %llu\n", sum(result));

  struct cudaFuncAttributes attributes;
  int blocks = 0;
  check("attributes", cudaFuncGetAttributes(&attributes, (const void *)scale));
  check("occupancy", cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, (const void *)scale, 256, 0));
  printf("attributes %s\n", attributes.maxThreadsPerBlock >= 256 && blocks > 0 ? "sensible" : "odd");

  const cudaError_t refused = cudaLaunchKernel((const void *)scale, grid, wrong, arguments, 0, stream);
  const cudaError_t peeked = cudaPeekAtLastError(), last = cudaGetLastError();
  printf("refused %s %s %s\n", cudaGetErrorName(refused), cudaGetErrorName(peeked), cudaGetErrorName(last));
  printf("then %s\n", cudaGetErrorName(cudaGetLastError()));
  check("free", cudaFree(in));
  check("free", cudaFree(out));
  check("synchronize", cudaDeviceSynchronize());
  printf("done\n");
  return 0;
}

/* With an argument it computes again after a line of its input: in another session, where a new worker has the share. */
int main(int count, char **arguments) {
  (void)arguments;
  register_all();
  const int result = compute();
  if (result != 0 || count == 1) return result;
  puts("again");
  fflush(stdout);
  if (getchar() == EOF) return 2;
  cudaDeviceSynchronize(); /* notices that the worker is gone, and fails */
  cudaGetLastError();
  return compute();
}
