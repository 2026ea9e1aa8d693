#include "libraries/nccl/context.h"

#include "libraries/nccl/status.h"

namespace gpupool::nccl {

const libraries::Driver& driver() {
  const libraries::Driver* found = nullptr;
  require_driver(libraries::enter(found), "no GPU");
  return *found;
}

InContext::InContext(CUcontext context) : driver_(driver()) {
  require_driver(driver_.cuCtxGetCurrent(&before_), "the current context");
  require_driver(driver_.cuCtxSetCurrent(context), "the communicator's context");
}

InContext::~InContext() {
  static_cast<void>(driver_.cuCtxSetCurrent(before_));
}

}  // namespace gpupool::nccl
