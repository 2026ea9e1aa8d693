// Stands in for NVIDIA's cuDNN beside a worker: it computes nothing, and writes how each convolution was
// asked for. Its heuristic names the algorithms in an order that the worker must not simply follow. It has no
// graphs, so that the worker takes the older functions.
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

struct performance {
  int algorithm, status;
  float milliseconds;
  size_t memory;
  int determinism, math, reserved[3];
};

static int math, format;

static int make(void **descriptor) {
  static int made;
  *descriptor = &made;
  return 0;
}
static int list(const struct performance *known, int count, int requested, int *returned,
                struct performance *into) {
  *returned = count < requested ? count : requested;
  for (int i = 0; i < *returned; ++i) into[i] = known[i];
  return 0;
}
static int record(const char *direction, int algorithm) {
  FILE *const file = fopen(getenv("RECORDED_CONVOLUTIONS"), "a");
  fprintf(file, "%s %d %d %d\n", direction, math, algorithm, format);
  return fclose(file);
}

int cudnnCreate(void **handle) { return make(handle); }
int cudnnDestroy(void *handle) { return 0; }
int cudnnSetStream(void *handle, void *stream) { return 0; }
int cudnnCreateTensorDescriptor(void **descriptor) { return make(descriptor); }
int cudnnDestroyTensorDescriptor(void *descriptor) { return 0; }
int cudnnSetTensorNdDescriptor(void *descriptor, int type, int dims, const int *sizes, const int *strides) {
  return 0;
}
int cudnnCreateFilterDescriptor(void **descriptor) { return make(descriptor); }
int cudnnDestroyFilterDescriptor(void *descriptor) { return 0; }
int cudnnSetFilterNdDescriptor(void *descriptor, int type, int given, int dims, const int *sizes) {
  format = given;
  return 0;
}
int cudnnCreateConvolutionDescriptor(void **descriptor) { return make(descriptor); }
int cudnnDestroyConvolutionDescriptor(void *descriptor) { return 0; }
int cudnnSetConvolutionNdDescriptor(void *descriptor, int dims, const int *padding, const int *stride,
                                    const int *dilation, int mode, int type) {
  return 0;
}
int cudnnSetConvolutionGroupCount(void *descriptor, int groups) { return 0; }
int cudnnSetConvolutionMathType(void *descriptor, int type) {
  math = type;
  return 0;
}

// Not deterministic, larger than a worker gives, and the one that it is to take. Of the gradient of filters
// each is larger than that: then the smallest is to be taken.
static const struct performance usual[] = {
    {0, 0, 0, 0, 0, 0, {0}}, {5, 0, 0, (size_t)1 << 30, 1, 0, {0}}, {1, 0, 0, 0, 1, 0, {0}}};
static const struct performance large[] = {
    {0, 0, 0, 0, 0, 0, {0}}, {5, 0, 0, (size_t)1 << 30, 1, 0, {0}}, {4, 0, 0, (size_t)1 << 29, 1, 0, {0}}};

#define DIRECTION(name, known)                                                                              \
  int cudnnGetConvolution##name##Algorithm_v7(void *handle, void *one, void *other, void *how, void *target, \
                                              int requested, int *returned, struct performance *into) {     \
    return list(known, 3, requested, returned, into);                                                       \
  }                                                                                                         \
  int cudnnGetConvolution##name##WorkspaceSize(void *handle, void *one, void *other, void *how,             \
                                               void *target, int algorithm, size_t *bytes) {                \
    *bytes = 0;                                                                                             \
    return 0;                                                                                               \
  }                                                                                                         \
  int cudnnConvolution##name(void *handle, const void *alpha, void *one, const void *at_one, void *other,   \
                             const void *at_other, void *how, int algorithm, void *work, size_t bytes,      \
                             const void *beta, void *target, void *at_target) {                             \
    return record(#name, algorithm);                                                                        \
  }
DIRECTION(Forward, usual)
DIRECTION(BackwardData, usual)
DIRECTION(BackwardFilter, large)
