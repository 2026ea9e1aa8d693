/* The C control interface of the client runtime over counters that a test can foretell.
 *
 * For tests of the notebook side alone: when a cell attaches, drains and gives back, and what
 * it shows. Whoever wants to know that CUDA works uses the real runtime.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int attached;
static int drains;
static int ended;

int gpupool_attach(void) {
  attached = 1;
  return getenv("STAND_IN_ATTACH") ? atoi(getenv("STAND_IN_ATTACH")) : 0;
}

int gpupool_drain(int timeout_ms) {
  (void)timeout_ms;
  ++drains;
  if (getenv("STAND_IN_KERNEL")) {
    while (!ended && getenv("STAND_IN_KERNEL")) usleep(10000);
    if (!ended) return 0;
    ended = 0;
    unsetenv("STAND_IN_KERNEL");
    return 46;
  }
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
                  "\"state\":\"%s\",\"software\":false,\"failure\":%s}",
                  100 * drains, 7 * drains, drains, 2048 * drains, drains, attached ? "attached" : "none",
                  getenv("STAND_IN_FAILURE") ? getenv("STAND_IN_FAILURE") : "0");
}

/* STAND_IN_FAILURE: the error that ended the session; STAND_IN_KERNEL: what runs, and a drain waits for it. */
int gpupool_inquire(char* buffer, size_t size) {
  const char* const kernel = getenv("STAND_IN_KERNEL");
  return snprintf(buffer, size,
                  "{\"answers\":true,\"work\":\"%s\",\"kernel\":\"%s\",\"seconds\":14.0,\"failure\":0,"
                  "\"failed_kernel\":\"\",\"awaits_turn\":false}",
                  kernel ? "running" : "", kernel ? kernel : "");
}

int gpupool_end_session(void) {
  ended = 1;
  return 0;
}

int gpupool_stand_in_wishes;
static char message[512] = "the worker says why";

void gpupool_wish_for_leases(int on) { gpupool_stand_in_wishes = on; }

const char* gpupool_last_message(void) { return message; }
const char* gpupool_take_refusal(void) { return ""; }
