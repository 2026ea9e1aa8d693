// A call that waits for the device, between its admission in order and its answer.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "wire/bytes.h"
#include "wire/frame.h"
#include "worker/conversation/outlet.h"

namespace gpupool::worker {

/// What a reply says besides its header.
struct Answer {
  wire::Buffer fields;
  Payload payload;
  bool keep_fields = false;  ///< the fields are sent although the call failed
};

/// What a handler leaves to be done where it delays nobody. It has looked everything up before: handle tables
/// and arenas belong to the executing thread, so `finish` speaks with the driver alone.
struct Wait {
  /// May wait for the device. Called on any thread, in `context`.
  std::function<CUresult(Answer&)> finish;
  /// Whether finish would not wait, as far as can be told without waiting. May be null.
  std::function<bool()> ready;
  /// What must not be destroyed before finish has returned.
  std::vector<const void*> uses;
  /// Null: the one that is current at admission.
  CUcontext context = nullptr;
};

}  // namespace gpupool::worker
