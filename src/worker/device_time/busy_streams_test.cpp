#include "worker/device_time/busy_streams.h"

#include <doctest/doctest.h>

#include <map>
#include <set>

using namespace gpupool::worker;

namespace {

std::set<CUstream> unfinished, captured;
std::map<CUevent, CUstream> ends;  // that were recorded, and not destroyed
std::set<CUstream> awaited;        // by waiting for a stream or an end

CUstream stream(std::uintptr_t n) {
  return reinterpret_cast<CUstream>(0x1000 + n);
}
const CUcontext context = reinterpret_cast<CUcontext>(std::uintptr_t{0x10});
const CUcontext other = reinterpret_cast<CUcontext>(std::uintptr_t{0x20});

/// A driver that knows which streams have not finished, and which are captured: then the legacy stream is
/// caught.
struct Streams {
  Streams() {
    unfinished.clear();
    captured.clear();
    ends.clear();
    awaited.clear();
    api.cuCtxPushCurrent_v2_ = [](CUcontext) { return CUDA_SUCCESS; };
    api.cuCtxPopCurrent_v2_ = [](CUcontext*) { return CUDA_SUCCESS; };
    api.cuStreamIsCapturing_ = [](CUstream one, CUstreamCaptureStatus* status) {
      *status = captured.contains(one) ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
      return one == nullptr && !captured.empty() ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
    };
    api.cuStreamQuery_ = [](CUstream one) {
      spoils(one);
      return unfinished.contains(one) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
    };
    api.cuStreamSynchronize_ = [](CUstream one) {
      spoils(one);
      awaited.insert(one);
      return CUDA_SUCCESS;
    };
    api.cuEventCreate_ = [](CUevent* event, unsigned) {
      static std::uintptr_t made = 0x2000;
      *event = reinterpret_cast<CUevent>(++made);
      return CUDA_SUCCESS;
    };
    api.cuEventRecord_ = [](CUevent event, CUstream one) {
      spoils(one);
      ends[event] = one;
      return CUDA_SUCCESS;
    };
    api.cuEventQuery_ = [](CUevent event) {
      return unfinished.contains(ends.at(event)) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
    };
    api.cuEventSynchronize_ = [](CUevent event) {
      awaited.insert(ends.at(event));
      return CUDA_SUCCESS;
    };
    api.cuEventDestroy_v2_ = [](CUevent event) {
      CHECK(ends.erase(event) == 1);
      return CUDA_SUCCESS;
    };
  }
  static void spoils(CUstream one) {
    CHECK_FALSE(captured.contains(one));
    if (one == nullptr) CHECK(captured.empty());
  }

  DriverApi api;
  BusyStreams busy{api};
};

/// More streams than a context's list has room for are given work, and only the last of them goes on with it.
struct Crowd : Streams {
  static constexpr std::uintptr_t count = 40;

  Crowd() {
    unfinished = {stream(count)};
    for (std::uintptr_t n = 1; n <= count; ++n) busy.work(context, stream(n));
  }
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
  unfinished = {stream(1)};
  CHECK_FALSE(crowd.busy.idle(context));
  crowd.busy.work(context, stream(1));
  crowd.busy.leave(context, stream(1));
  CHECK_FALSE(crowd.busy.idle(context));
  crowd.busy.awaits(context).ended();
  CHECK(crowd.busy.idle(context));
}

TEST_CASE("the work of a stream that has left is waited for, although the stream may not be asked") {
  Streams driver;
  BusyStreams& busy = driver.busy;
  busy.work(context, stream(1));
  busy.work(context, stream(2));
  busy.work(context, stream(3));
  unfinished = {stream(1), stream(3)};
  for (std::uintptr_t n = 1; n <= 3; ++n) busy.leave(context, stream(n));
  CHECK(ends.size() == 2);  // one had finished
  captured = {stream(1)};
  busy.work(context, stream(1));  // a node of the graph
  CHECK(busy.listed_idle(context));
  CHECK_FALSE(busy.idle(context));
  CHECK(busy.finish(context) == CUDA_SUCCESS);
  CHECK(awaited == std::set{stream(1), stream(3)});
  CHECK(ends.empty());
  CHECK(busy.finish(other) == CUDA_SUCCESS);
}

TEST_CASE("a stream that is in no list has an end too when it leaves") {
  Crowd crowd;
  crowd.busy.leave(context, stream(Crowd::count));
  CHECK(ends.size() == 1);
  crowd.busy.forget_context(context);
  CHECK(ends.empty());
}

TEST_CASE("where no event can be made, a stream that leaves is waited for") {
  Streams driver;
  driver.api.cuEventRecord_ = [](CUevent event, CUstream one) {
    ends[event] = one;
    return CUDA_ERROR_INVALID_HANDLE;
  };
  unfinished = {stream(1)};
  driver.busy.work(context, stream(1));
  driver.busy.leave(context, stream(1));
  CHECK(awaited == std::set{stream(1)});
  CHECK(ends.empty());
}

TEST_CASE("ends that are complete do not pile up") {
  Streams driver;
  for (std::uintptr_t n = 1; n <= 1000; ++n) {
    unfinished = {stream(0), stream(n)};
    driver.busy.work(context, stream(n));
    driver.busy.leave(context, stream(n));
  }
  CHECK(ends.size() <= 32);
}

TEST_CASE("the legacy stream is left alone while a stream is captured that it waits for") {
  Streams driver;
  BusyStreams& busy = driver.busy;
  for (std::uintptr_t n = 1; n <= Crowd::count; ++n) busy.work(context, stream(n));
  busy.work(context, nullptr);  // listed, however many there are
  unfinished = {nullptr};
  busy.before_capture();
  captured = {stream(1)};
  CHECK(busy.finish(context) == CUDA_SUCCESS);
  CHECK(awaited.contains(nullptr));  // what it was given before the capture
  CHECK(ends.empty());
  CHECK_FALSE(busy.idle(context));
  captured.clear();
  unfinished.clear();
  busy.awaits(context).ended();
  CHECK(busy.idle(context));
}
