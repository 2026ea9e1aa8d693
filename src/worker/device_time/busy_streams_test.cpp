#include "worker/device_time/busy_streams.h"

#include <doctest/doctest.h>

#include <set>

using namespace gpupool::worker;

namespace {

std::set<CUstream> unfinished;

CUstream stream(std::uintptr_t n) {
  return reinterpret_cast<CUstream>(0x1000 + n);
}
const CUcontext context = reinterpret_cast<CUcontext>(std::uintptr_t{0x10});
const CUcontext other = reinterpret_cast<CUcontext>(std::uintptr_t{0x20});

/// A driver that knows which streams have not finished. More streams than a context's list has room for are
/// given work, and only the last of them goes on with it.
struct Crowd {
  static constexpr std::uintptr_t count = 40;

  Crowd() {
    unfinished = {stream(count)};
    api.cuStreamQuery_ = [](CUstream one) {
      return unfinished.contains(one) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
    };
    api.cuStreamIsCapturing_ = [](CUstream, CUstreamCaptureStatus* status) {
      *status = CU_STREAM_CAPTURE_STATUS_NONE;
      return CUDA_SUCCESS;
    };
    for (std::uintptr_t n = 1; n <= count; ++n) busy.work(context, stream(n));
  }

  DriverApi api;
  BusyStreams busy{api};
};

}  // namespace

TEST_CASE("a stream that is in no list keeps its context busy however often one asks") {
  Crowd crowd;
  for (int n = 0; n < 3; ++n) CHECK_FALSE(crowd.busy.idle(context));
  CHECK(crowd.busy.listed_idle(context));
  CHECK(crowd.busy.idle(other));
}

TEST_CASE("a context is idle when a wait for it has ended, not when it has begun") {
  Crowd crowd;
  const auto awaited = crowd.busy.awaits(context);
  CHECK_FALSE(crowd.busy.idle(context));
  unfinished.clear();
  awaited.ended();
  CHECK(crowd.busy.idle(context));
}

TEST_CASE("what is given while somebody waits is not finished with the wait") {
  Crowd crowd;
  const auto awaited = crowd.busy.awaits(context);
  crowd.busy.work(context, stream(Crowd::count));  // as the last before the wait
  awaited.ended();
  CHECK_FALSE(crowd.busy.idle(context));
  crowd.busy.awaits(context).ended();
  awaited.ended();  // an earlier wait that is told later takes nothing back
  CHECK(crowd.busy.idle(context));
}

TEST_CASE("the work of a stream that was destroyed is finished with the next wait") {
  Crowd crowd;
  crowd.busy.awaits(context).ended();
  unfinished.clear();
  CHECK(crowd.busy.idle(context));
  crowd.busy.work(context, stream(1));
  crowd.busy.forget(stream(1));
  CHECK_FALSE(crowd.busy.idle(context));
  crowd.busy.awaits(context).ended();
  CHECK(crowd.busy.idle(context));
}

TEST_CASE("the legacy stream is left alone while a stream is captured that it waits for") {
  static int touched = 0;
  touched = 0;
  DriverApi api;
  api.cuStreamIsCapturing_ = [](CUstream one, CUstreamCaptureStatus* status) {
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return one == nullptr ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
  };
  api.cuStreamQuery_ = api.cuStreamSynchronize_ = [](CUstream one) {
    touched += one == nullptr ? 1 : 0;
    return CUDA_SUCCESS;
  };
  BusyStreams busy(api);
  busy.work(context, nullptr);
  busy.work(context, stream(1));
  CHECK(busy.finish(context) == CUDA_SUCCESS);
  CHECK_FALSE(busy.idle(context));  // what it was given before the capture may go on
  CHECK(touched == 0);
  api.cuStreamIsCapturing_ = [](CUstream, CUstreamCaptureStatus* status) {
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
  };
  CHECK(busy.idle(context));
  CHECK(touched == 1);
}
