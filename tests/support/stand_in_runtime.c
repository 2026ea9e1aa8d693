/* The C control interface of the client runtime over counters that a test can foretell.
 *
 * For tests of the notebook side alone: when a cell attaches, drains and gives back, and what
 * it shows. Whoever wants to know that CUDA works uses the real runtime.
 */
#include <stdio.h>
#include <stdlib.h>

static int attached;
static int drains;

int gpupool_attach(void) {
  attached = 1;
  return getenv("STAND_IN_ATTACH") ? atoi(getenv("STAND_IN_ATTACH")) : 0;
}

int gpupool_drain(int timeout_ms) {
  (void)timeout_ms;
  ++drains;
  return getenv("STAND_IN_DRAIN") ? atoi(getenv("STAND_IN_DRAIN")) : 0;
}

int gpupool_detach(void) {
  attached = 0;
  return 0;
}

int gpupool_counters(char* buffer, size_t size, int reset_peak) {
  (void)reset_peak;
  return snprintf(buffer, size,
                  "{\"calls\":%d,\"posts\":0,\"asks\":%d,\"ask_seconds\":%d.5,\"bytes_to_device\":%d,"
                  "\"bytes_from_device\":0,\"asks_by_name\":{},\"worker\":{\"device_seconds\":%d.25,"
                  "\"kernels\":1,\"memory_used\":[0],\"memory_peak\":[3145728]},"
                  "\"state\":\"%s\",\"software\":false}",
                  100 * drains, 7 * drains, drains, 2048 * drains, drains, attached ? "attached" : "none");
}

static int wishing;
static char message[512] = "the worker says why";

void gpupool_wish_for_leases(int on) { wishing = on; }

const char* gpupool_last_message(void) { return message; }
