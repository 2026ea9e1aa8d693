// What calls do for host memory that the device uses too (call_hooks.h): both kinds of it, in one order.
#include "base/mutex.h"
#include "client/call/call_hooks.h"
#include "client/memory/coherent_memory.h"
#include "client/memory/host_mirrors.h"
#include "client/process/main_wait.h"

namespace gpupool::client {

CUresult hand_host_memory_over(WorkerLink& worker, HandedOver& handed_over) {
  if (host_mirrors().any()) {
    if (const CUresult gone = host_mirrors().send_changes(worker); gone != CUDA_SUCCESS) return gone;
  }
  if (coherent_memory().any()) {
    const MainWait wait;  // for who fetches pages
    handed_over = coherent_memory().hand_over(worker);
  }
  return CUDA_SUCCESS;
}

void hand_host_memory_back(const WorkerLink& worker, HandedOver& handed_over) {
  if (coherent_memory().any()) handed_over = coherent_memory().hand_back(worker);
}

CUresult flush_host_memory(WorkerLink& worker) {
  if (host_mirrors().any()) {
    if (const CUresult gone = host_mirrors().send_changes(worker); gone != CUDA_SUCCESS) return gone;
  }
  if (coherent_memory().any()) {
    const MainWait wait;
    coherent_memory().flush(worker);
  }
  return CUDA_SUCCESS;
}

void take_host_memory(const WorkerLink& worker) {
  if (host_mirrors().any()) host_mirrors().take_changes(worker);
}

void open_host_memory(std::vector<iovec>& parts) {
  coherent_memory().open_views(parts);
}

}  // namespace gpupool::client
