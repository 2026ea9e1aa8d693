#include "softgpu/driver/checkpoint.h"

#include <sys/mman.h>
#include <unistd.h>

#include "softgpu/driver/context.h"
#include "softgpu/driver/driver.h"
#include "softgpu/driver/error.h"

namespace softgpu::driver {
namespace {

template <class Action>
void for_each_arena(Action action) {
  std::size_t at = 0;
  for (const auto& device : Driver::get().devices()) {
    action(device->arena(), at);
    at += device->arena().span();
  }
}

}  // namespace

Checkpoint::~Checkpoint() {
  if (store_ >= 0) close(store_);
}

CUprocessState Checkpoint::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

void Checkpoint::lock(unsigned timeout_ms) {
  const std::lock_guard lock(mutex_);
  require(state_ == CU_PROCESS_STATE_RUNNING, CUDA_ERROR_ILLEGAL_STATE);
  std::optional<std::chrono::milliseconds> timeout;
  if (timeout_ms) timeout = std::chrono::milliseconds(timeout_ms);
  Driver& driver = Driver::get();
  require(driver.gate.close(timeout), CUDA_ERROR_NOT_READY);
  // Work that was submitted ends first; a context that has failed has nothing left to wait for.
  driver.contexts.for_each([](Context& context) {
    for (const auto& stream : context.streams()) stream->synchronize();
    context.legacy_stream()->synchronize();
  });
  state_ = CU_PROCESS_STATE_LOCKED;
}

void Checkpoint::save() {
  const std::lock_guard lock(mutex_);
  require(state_ == CU_PROCESS_STATE_LOCKED, CUDA_ERROR_ILLEGAL_STATE);
  store_ = memfd_create("softgpu-checkpoint", MFD_CLOEXEC);
  require(store_ >= 0, CUDA_ERROR_OUT_OF_MEMORY);
  try {
    for_each_arena([this](Arena& arena, std::size_t at) { arena.park(store_, at); });
  } catch (const Error&) {
    state_ = CU_PROCESS_STATE_FAILED;
    throw;
  }
  state_ = CU_PROCESS_STATE_CHECKPOINTED;
}

void Checkpoint::restore() {
  const std::lock_guard lock(mutex_);
  require(state_ == CU_PROCESS_STATE_CHECKPOINTED, CUDA_ERROR_ILLEGAL_STATE);
  try {
    for_each_arena([this](Arena& arena, std::size_t at) { arena.unpark(store_, at); });
  } catch (const Error&) {
    state_ = CU_PROCESS_STATE_FAILED;
    throw;
  }
  close(store_);
  store_ = -1;
  state_ = CU_PROCESS_STATE_LOCKED;
}

void Checkpoint::unlock() {
  const std::lock_guard lock(mutex_);
  require(state_ == CU_PROCESS_STATE_LOCKED, CUDA_ERROR_ILLEGAL_STATE);
  state_ = CU_PROCESS_STATE_RUNNING;
  Driver::get().gate.open();
}

}  // namespace softgpu::driver
