// Stands in for NVIDIA's cuDNN beside a worker, with graphs of one convolution and the older functions: it
// computes nothing, and writes which engine each was executed by. Its engines are listed in an order that the
// worker must not simply follow. The environment says where it fails, and where it writes what became of
// plans.
#include <stdint.h>

#include "recording_cudnn.c"

enum { engine_kind = 2, config_kind = 3, heuristic_kind = 4, plan_kind = 5, graph_kind = 15 };
enum { tensor_core = 0, converts_down = 1, nondeterministic = 4 };

struct descriptor {
  int kind, index, operation, mode, number;
};
struct engine {
  int notes[2], count, status;
  int64_t workspace;
};
// Not deterministic; rounds its operands; cannot be had; by tensor cores and too large; by tensor cores and
// with much memory; by tensor cores with little; and plainly.
static const struct engine engines[] = {{{tensor_core, nondeterministic}, 2, 0, 0},
                                        {{tensor_core, converts_down}, 2, 0, 0},
                                        {{tensor_core}, 1, 3000, 0},
                                        {{tensor_core}, 1, 0, (int64_t)1 << 31},
                                        {{tensor_core}, 1, 0, (int64_t)1 << 27},
                                        {{tensor_core}, 1, 0, 4096},
                                        {{0}, 0, 0, 0}};
enum { known = sizeof engines / sizeof *engines };

static int operation;  // of the graph that is described

/// A number of the environment; -1: it is not there.
static int given(const char* name) {
  const char* const text = getenv(name);
  return text == NULL ? -1 : atoi(text);
}
static void write_plan(const char* what, const struct descriptor* plan) {
  const char* const path = getenv("RECORDED_PLANS");
  if (path == NULL) return;
  FILE* const file = fopen(path, "a");
  fprintf(file, "%s %d\n", what, plan->number);
  fclose(file);
}

int cudnnBackendCreateDescriptor(int kind, void** made) {
  static int plans;
  struct descriptor* const descriptor = calloc(1, sizeof *descriptor);
  descriptor->kind = kind;
  if (kind >= 10 && kind <= 12) operation = kind;
  if (kind == plan_kind) descriptor->number = plans++;
  *made = descriptor;
  return 0;
}
int cudnnBackendDestroyDescriptor(void* descriptor) {
  const struct descriptor* const of = descriptor;
  if (of->kind == plan_kind) write_plan("ended", of);
  free(descriptor);
  return 0;
}
int cudnnBackendSetAttribute(void* descriptor, int name, int type, int64_t count, const void* values) {
  struct descriptor* const of = descriptor;
  if (name == 200) of->mode = *(const int*)values;
  if (name == 401) {
    of->index = (*(struct descriptor* const*)values)->index;
    of->operation = operation;
  }
  return 0;
}
int cudnnBackendFinalize(void* descriptor) {
  static int graphs;
  const struct descriptor* const of = descriptor;
  if (of->kind == graph_kind && graphs++ == 0 && given("FIRST_GRAPH_FAILS") != -1)
    return given("FIRST_GRAPH_FAILS");
  if (of->kind == heuristic_kind && of->mode == given("HEURISTIC_FAILS")) return 3000;
  return of->kind == plan_kind ? engines[of->index].status : 0;
}
int cudnnBackendGetAttribute(void* descriptor, int name, int type, int64_t requested, int64_t* count,
                             void* into) {
  const struct descriptor* const of = descriptor;
  switch (name) {
    case 202:
      *count = known;
      for (int i = 0; i < known && i < requested; ++i) ((struct descriptor**)into)[i]->index = i;
      return 0;
    case 300:
      *count = 1;
      (*(struct descriptor**)into)->index = of->index;
      return 0;
    case 1303:
      if (of->index == given("NOTES_FAIL")) return 4000;
      *count = engines[of->index].count;
      for (int i = 0; i < *count; ++i) ((int*)into)[i] = engines[of->index].notes[i];
      return 0;
    case 402:
      *count = 1;
      *(int64_t*)into = engines[of->index].workspace;
      return 0;
    default:
      return 2000;
  }
}
int cudnnBackendExecute(void* handle, void* plan, void* pack) {
  static const char* const names[] = {"Forward", "BackwardFilter", "BackwardData"};
  const struct descriptor* const of = plan;
  write_plan("executed", of);
  if (given("EXECUTION_FAILS") != -1) return given("EXECUTION_FAILS");
  FILE* const file = fopen(getenv("RECORDED_CONVOLUTIONS"), "a");
  fprintf(file, "%s %d\n", names[of->operation - 10], of->index);
  return fclose(file);
}
