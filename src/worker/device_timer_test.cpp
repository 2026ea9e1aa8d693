#include "worker/device_timer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>

using namespace gpupool::worker;

// A device whose clock the test moves: events take the time at which their stream gets to them.
namespace {

struct Device {
  double now_ms = 0;
  std::map<void*, double> stream_free_at;  // when the stream's work is done
  std::map<void*, double> recorded;        // event -> time
  std::set<void*> living;
  std::uintptr_t next_event = 0x1000;
  int pushed = 0;
  bool capturing = false;
};
Device* device = nullptr;

void* at(std::uintptr_t value) {
  return reinterpret_cast<void*>(value);
}

EventFunctions functions() {
  EventFunctions f;
  f.context_push = [](void*) { return ++device->pushed, 0; };
  f.context_pop = [](void**) { return --device->pushed, 0; };
  f.stream_is_capturing = [](void*, int* status) { return *status = device->capturing ? 1 : 0, 0; };
  f.event_create = [](void** event, unsigned) {
    *event = at(device->next_event++);
    device->living.insert(*event);
    return 0;
  };
  f.event_destroy = [](void* event) { return device->living.erase(event), 0; };
  f.event_record = [](void* event, void* stream) {
    device->recorded[event] = std::max(device->now_ms, device->stream_free_at[stream]);
    return 0;
  };
  f.event_query = [](void* event) { return device->recorded[event] <= device->now_ms ? 0 : 600; };
  f.event_elapsed = [](float* ms, void* start, void* end) {
    *ms = static_cast<float>(device->recorded[end] - device->recorded[start]);
    return 0;
  };
  return f;
}

void launch(DeviceTimer& timer, void* stream, double ms) {
  timer.work(at(1), stream);
  device->stream_free_at[stream] = std::max(device->now_ms, device->stream_free_at[stream]) + ms;
}

struct Rig {
  Device simulated;
  Usage usage;
  DeviceTimer timer;
  Rig() : timer((device = &simulated, functions()), usage) {}
  std::uint64_t charged_us() const { return usage.snapshot().device_ns / 1000; }
};

}  // namespace

TEST_CASE("a burst is charged what the device took, once it is complete, without waiting") {
  Rig rig;
  launch(rig.timer, at(10), 3);
  launch(rig.timer, at(10), 4);
  rig.timer.pause();
  CHECK(rig.charged_us() == 0);
  CHECK(rig.usage.snapshot().in_flight);
  rig.simulated.now_ms = 6.9;
  rig.timer.resolve();
  CHECK(rig.charged_us() == 0);
  rig.simulated.now_ms = 7;
  rig.timer.resolve();
  CHECK(rig.charged_us() == 7000);
  CHECK_FALSE(rig.usage.snapshot().in_flight);
}

TEST_CASE("idle time between bursts is free") {
  Rig rig;
  for (int burst = 0; burst < 3; ++burst) {
    launch(rig.timer, at(10), 2);
    rig.timer.pause();
    rig.simulated.now_ms += 100;
    rig.timer.resolve();
  }
  CHECK(rig.charged_us() == 6000);
}

TEST_CASE("streams that overlap are charged once") {
  Rig rig;
  launch(rig.timer, at(10), 10);
  launch(rig.timer, at(20), 10);
  rig.timer.pause();
  rig.simulated.now_ms = 50;
  rig.timer.resolve();
  CHECK(rig.charged_us() == 10'000);
}

TEST_CASE("a capturing stream is left alone") {
  Rig rig;
  rig.simulated.capturing = true;
  launch(rig.timer, at(10), 10);
  rig.timer.pause();
  rig.simulated.now_ms = 50;
  rig.timer.resolve();
  CHECK(rig.simulated.recorded.empty());
  CHECK(rig.charged_us() == 0);
  CHECK_FALSE(rig.usage.snapshot().in_flight);
}

TEST_CASE("events are used again, and the current context is left as it was") {
  Rig rig;
  for (int burst = 0; burst < 100; ++burst) {
    launch(rig.timer, at(10), 1);
    rig.timer.pause();
    rig.simulated.now_ms += 2;
    rig.timer.resolve();
  }
  CHECK(rig.simulated.living.size() <= 4);
  CHECK(rig.simulated.pushed == 0);
  CHECK(rig.charged_us() == 100'000);
}

TEST_CASE("a context that goes away takes its unfinished bursts along") {
  Rig rig;
  launch(rig.timer, at(10), 5);
  rig.timer.pause();
  launch(rig.timer, at(20), 5);
  rig.timer.forget(at(1), nullptr, true);
  rig.simulated.now_ms = 50;
  rig.timer.resolve();
  CHECK(rig.charged_us() == 0);
  CHECK_FALSE(rig.usage.snapshot().in_flight);
}

TEST_CASE("a stream that never completes does not collect bursts without end") {
  Rig rig;
  for (int burst = 0; burst < 5000; ++burst) {
    launch(rig.timer, at(10), 1e9);
    rig.timer.pause();
  }
  CHECK(rig.simulated.living.size() < 1000);
}

TEST_CASE("each device has a meter, which tells what is complete piece by piece") {
  Rig rig;
  DeviceMeter first, second;
  const auto work = [&](void* context, DeviceMeter& meter, double ms) {
    rig.timer.work(context, context, &meter);
    rig.simulated.stream_free_at[context] =
        std::max(rig.simulated.now_ms, rig.simulated.stream_free_at[context]) + ms;
  };
  work(at(1), first, 4);
  CHECK(rig.timer.look(first).in_flight);
  CHECK_FALSE(rig.timer.look(second).in_flight);
  const std::uint64_t piece = rig.timer.pause();
  work(at(1), first, 6);
  work(at(2), second, 3);
  CHECK(rig.timer.pause() == piece + 1);
  CHECK(rig.timer.look(first).first_unfinished == piece);
  rig.simulated.now_ms = 5;
  CHECK(rig.timer.look(first).busy_ns == 4'000'000);
  CHECK(rig.timer.look(first).first_unfinished == piece + 1);
  CHECK(rig.timer.look(second).busy_ns == 3'000'000);
  CHECK_FALSE(rig.timer.look(second).in_flight);
  CHECK(rig.timer.look(second).first_unfinished == piece + 2);
  rig.simulated.now_ms = 10;
  CHECK(rig.timer.look(first).busy_ns == 10'000'000);
  CHECK_FALSE(rig.timer.look(first).in_flight);
  CHECK(rig.charged_us() == 13'000);
}
