#include "client/session/earlier_error.h"

#include <atomic>
#include <string>

#include "client/link/worker_result.h"
#include "client/process/counters.h"
#include "client/process/log.h"
#include "client/session/session_hooks.h"
#include "client/session/worker_link.h"
#include "shared_api/error_log.h"

namespace gpupool::client {

CUresult earlier_or(CUresult own, const WorkerLink& worker) {
  const auto failed = worker.connection.load(std::memory_order_acquire)->take_deferred();
  if (!failed) {
    if (own == CUDA_ERROR_OUT_OF_MEMORY) hear_refusals();
    return own;
  }
  const auto error = worker_result(failed->error);
  const bool unattached = error == CUDA_ERROR_DEVICE_UNAVAILABLE;
  std::string text =
      std::string(shown_name(failed->message)) + " failed earlier with error " + std::to_string(error);
  if (unattached) text += " (no GPU was attached when it reached the worker)";
  log_line(text);
  error_log().add(text);
  // Where this call is refused too, its own message says more: why there is no GPU.
  if (!unattached || own != CUDA_ERROR_DEVICE_UNAVAILABLE) remember(text);
  if (error == CUDA_ERROR_OUT_OF_MEMORY) hear_refusals();
  return error;
}

}  // namespace gpupool::client
