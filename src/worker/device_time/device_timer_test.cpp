#include "worker/device_time/device_timer.h"

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
  int error = 0;  // of everything that is done with an event
  int pushed = 0;
  bool capturing = false;
};
Device* device = nullptr;

void* at(std::uintptr_t value) {
  return reinterpret_cast<void*>(value);
}

EventFunctions functions(bool tells_event_times) {
  EventFunctions f;
  if (tells_event_times) {
    f.event_ns = [](void* event, std::int64_t* ns) {
      if (device->recorded[event] > device->now_ms) return 600;
      *ns = static_cast<std::int64_t>(device->recorded[event] * 1e6);
      return 0;
    };
  }
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
    if (device->error != 0) return device->error;
    device->recorded[event] = std::max(device->now_ms, device->stream_free_at[stream]);
    return 0;
  };
  f.event_query = [](void* event) {
    return device->error != 0 ? device->error : device->recorded[event] <= device->now_ms ? 0 : 600;
  };
  f.event_elapsed = [](float* ms, void* start, void* end) {
    if (device->error != 0) return device->error;
    if (std::max(device->recorded[start], device->recorded[end]) > device->now_ms) return 600;
    *ms = static_cast<float>(device->recorded[end] - device->recorded[start]);
    return 0;
  };
  return f;
}

void launch(DeviceTimer& timer, void* stream, double ms, std::string_view kernel = {}) {
  timer.work(at(1), stream, nullptr, kernel);
  device->stream_free_at[stream] = std::max(device->now_ms, device->stream_free_at[stream]) + ms;
}

struct Rig {
  Device simulated;
  Usage usage;
  DeviceTimer timer;
  explicit Rig(bool tells_event_times = false)
      : timer((device = &simulated, functions(tells_event_times)), usage,
              [this] { return static_cast<std::int64_t>(simulated.now_ms * 1e6); }) {}
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

TEST_CASE("work beside a stream that never completes is charged, whatever waits there") {
  Rig rig;
  SUBCASE("the first work of all waits") {
    rig.simulated.stream_free_at[at(10)] = 1e12;
  }
  SUBCASE("work that came after another waits") {
    launch(rig.timer, at(10), 1e-3);
    rig.timer.pause();
    rig.simulated.stream_free_at[at(10)] = 1e12;
  }
  for (int burst = 0; burst < 300; ++burst) {
    launch(rig.timer, at(10), 1);
    rig.timer.pause();
  }
  for (int burst = 1; burst <= 3; ++burst) {  // the last one further away than one event is measured from
    rig.simulated.now_ms = 20'000.0 * burst;
    launch(rig.timer, at(20), 50);
    rig.timer.pause();
    rig.simulated.now_ms += 50;
    rig.timer.resolve();
    CHECK(rig.charged_us() / 10 == 5000u * static_cast<unsigned>(burst));
  }
  CHECK(rig.simulated.living.size() < 50);
}

TEST_CASE("a stream that is far behind is charged all that it does") {
  Rig rig;
  for (int burst = 0; burst < 300; ++burst) {
    launch(rig.timer, at(10), 10);
    rig.timer.pause();
  }
  for (; rig.simulated.now_ms < 3100; rig.simulated.now_ms += 100) {
    rig.timer.resolve();
    launch(rig.timer, at(20), 1);
    rig.timer.pause();
  }
  rig.timer.resolve();
  CHECK(rig.charged_us() == 3'001'000);  // the last millisecond of the other stream came later
  CHECK_FALSE(rig.usage.snapshot().in_flight);
}

TEST_CASE("a long kernel beside many short ones is charged whole") {
  Rig rig;
  launch(rig.timer, at(10), 60'000);
  rig.timer.pause();
  for (; rig.simulated.now_ms < 60'000; rig.simulated.now_ms += 10) {
    launch(rig.timer, at(20), 1);
    rig.timer.pause();
    rig.simulated.now_ms += 1;
    rig.timer.resolve();
  }
  rig.simulated.now_ms = 61'000;
  rig.timer.resolve();
  CHECK(rig.charged_us() / 1000 == 60'000);
}

TEST_CASE("a stream that joins a capture is charged for what it did before the end was to be marked") {
  Rig rig;
  launch(rig.timer, at(10), 500);
  rig.simulated.now_ms = 400;
  rig.simulated.capturing = true;
  rig.timer.pause();
  CHECK(rig.charged_us() == 400'000);
  CHECK_FALSE(rig.usage.snapshot().in_flight);
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

TEST_CASE("what runs is charged while it runs, and once") {
  Rig rig;
  launch(rig.timer, at(10), 90'000, "forever");
  rig.timer.pause();
  for (double now = 1000; now < 90'000; now += 1000) {
    rig.simulated.now_ms = now;
    rig.timer.resolve();
    CHECK(rig.charged_us() == static_cast<std::uint64_t>(now) * 1000);
    CHECK(rig.timer.running().running);
    CHECK(rig.timer.running().kernel == "forever");
    CHECK(rig.timer.running().ns == static_cast<std::int64_t>(now) * 1'000'000);
  }
  rig.simulated.now_ms = 95'000;
  rig.timer.resolve();
  CHECK(rig.charged_us() == 90'000'000);
  CHECK_FALSE(rig.timer.running().running);
}

TEST_CASE("what is queued behind something else does not run yet") {
  Rig rig;
  launch(rig.timer, at(10), 5000, "first");
  rig.timer.pause();
  launch(rig.timer, at(10), 7000, "second");
  rig.timer.pause();
  rig.simulated.now_ms = 4000;
  rig.timer.resolve();
  CHECK(rig.charged_us() == 4'000'000);
  CHECK(rig.timer.running().kernel == "first");
  rig.simulated.now_ms = 6000;
  rig.timer.resolve();
  CHECK(rig.charged_us() == 6'000'000);
  CHECK(rig.timer.running().kernel == "second");
  CHECK(rig.timer.running().ns == 1'000'000'000);
}

TEST_CASE("streams that run side by side for long are charged once, whenever each began") {
  Rig rig;
  for (int stream = 0; stream < 4; ++stream) {  // further apart than one event is measured from
    launch(rig.timer, at(10u + static_cast<unsigned>(stream)), 60'000 - 12'000.0 * stream);
    rig.timer.pause();
    rig.simulated.now_ms += 12'000;
    rig.timer.resolve();
    CHECK(rig.charged_us() == 12'000'000u * static_cast<unsigned>(stream + 1));
  }
  rig.simulated.now_ms = 70'000;
  rig.timer.resolve();
  CHECK(rig.charged_us() == 60'000'000);
  CHECK(rig.simulated.living.size() <= 16);
}

TEST_CASE("what was measured late on another stream is charged when its place is known") {
  Rig rig;
  launch(rig.timer, at(10), 30'000);
  rig.timer.pause();
  rig.simulated.now_ms = 11'000;
  launch(rig.timer, at(10), 1000);  // waits, and with it the event from which others are measured
  launch(rig.timer, at(20), 1000);
  rig.timer.pause();
  rig.simulated.now_ms = 20'000;
  rig.timer.resolve();
  CHECK(rig.charged_us() == 20'000'000);
  rig.simulated.now_ms = 40'000;
  rig.timer.resolve();
  CHECK(rig.charged_us() == 31'000'000);
  CHECK_FALSE(rig.usage.snapshot().in_flight);
}

TEST_CASE("work that ends in an error, or with its context, stays charged") {
  Rig rig;
  launch(rig.timer, at(10), 90'000, "poke");
  rig.timer.pause();
  rig.simulated.now_ms = 3000;
  rig.timer.resolve();
  SUBCASE("an error") {
    rig.simulated.now_ms = 3500;
    rig.simulated.error = 700;
    rig.timer.resolve();
    CHECK(rig.timer.failure().error == 700);
    CHECK(rig.timer.failure().kernel == "poke");
  }
  SUBCASE("its context") {
    rig.simulated.now_ms = 3500;
    rig.timer.forget(at(1), nullptr, true);
    CHECK(rig.timer.failure().error == 0);
  }
  rig.simulated.now_ms = 5000;
  rig.timer.resolve();
  CHECK(rig.charged_us() == 3'500'000);
  CHECK_FALSE(rig.usage.snapshot().in_flight);
  CHECK_FALSE(rig.timer.running().running);
}

TEST_CASE("an error that comes before the end of a burst is marked is told with its kernel") {
  Rig rig;
  launch(rig.timer, at(10), 5, "poke");
  rig.simulated.now_ms = 1;
  rig.simulated.error = 700;
  SUBCASE("at a pause") {
    rig.timer.pause();
  }
  SUBCASE("when the stream goes") {
    rig.timer.forget(at(1), at(10), false);
  }
  CHECK(rig.timer.failure().error == 700);
  CHECK(rig.timer.failure().kernel == "poke");
  rig.timer.resolve();
  CHECK_FALSE(rig.usage.snapshot().in_flight);
}

TEST_CASE("a period begins when the device comes to it, where the driver tells when that was") {
  for (const bool tells : {true, false}) {
    Rig rig(tells);
    rig.simulated.stream_free_at[at(10)] = 300;  // what others gave the stream
    launch(rig.timer, at(10), 1000);
    rig.timer.pause();
    rig.simulated.now_ms = 900;
    rig.timer.resolve();
    CHECK(rig.charged_us() == (tells ? 600'000 : 900'000));
    launch(rig.timer, at(10), 1000);
    rig.timer.pause();
    rig.simulated.now_ms = 1400;
    rig.timer.resolve();
    CHECK(rig.charged_us() == (tells ? 1'100'000 : 1'400'000));
  }
}

TEST_CASE("what a session used in another worker comes on top") {
  Rig rig;
  rig.usage.device_ns.store(5'000'000'000);
  launch(rig.timer, at(10), 1000);
  rig.timer.pause();
  rig.simulated.now_ms = 400;
  rig.timer.resolve();
  CHECK(rig.charged_us() == 5'400'000);
  rig.simulated.now_ms = 1200;
  rig.timer.resolve();
  CHECK(rig.charged_us() == 6'000'000);
}

TEST_CASE("what a meter tells never goes back") {
  Rig rig;
  DeviceMeter meter;
  rig.timer.work(at(1), at(10), &meter);
  rig.simulated.stream_free_at[at(10)] = 1000;
  rig.timer.pause();
  rig.simulated.now_ms = 400;
  CHECK(rig.timer.look(meter).busy_ns == 400'000'000);
  rig.simulated.recorded.begin()->second = 100;  // the device came to it later than it seemed
  rig.simulated.now_ms = 1000;
  CHECK(rig.timer.look(meter).busy_ns == 900'000'000);
}

namespace {

void call_client(DeviceTimer& timer, void* stream, double ms) {
  timer.client_function(at(1), stream);
  device->stream_free_at[stream] = std::max(device->now_ms, device->stream_free_at[stream]) + ms;
}

void wait_for(DeviceTimer& timer, void* stream, void* other) {
  timer.part(at(1), stream);
  double& free_at = device->stream_free_at[stream];
  free_at = std::max(free_at, device->stream_free_at[other]);
}

constexpr double endless = 1e9;

}  // namespace

TEST_CASE("a function of the client's is no work, and what waits for it is none yet") {
  Rig rig;
  launch(rig.timer, at(10), 5);
  call_client(rig.timer, at(10), 1000);
  launch(rig.timer, at(10), 7);
  rig.timer.pause();
  CHECK(rig.timer.under_way());
  rig.simulated.now_ms = 500;
  CHECK_FALSE(rig.timer.under_way());
  CHECK(rig.usage.snapshot().in_flight);
  CHECK(rig.charged_us() == 5000);
  rig.simulated.now_ms = 1006;
  CHECK(rig.timer.under_way());
  rig.simulated.now_ms = 1012;
  rig.timer.resolve();
  CHECK(rig.charged_us() == 12'000);
  CHECK_FALSE(rig.usage.snapshot().in_flight);
  CHECK_FALSE(rig.timer.running().running);
}

TEST_CASE("a function that never returns hides no kernel of another stream") {
  Rig rig;
  launch(rig.timer, at(10), endless, "spin");
  SUBCASE("one that runs already") {
    call_client(rig.timer, at(20), endless);
  }
  SUBCASE("one that comes after it") {
    call_client(rig.timer, at(20), endless);
    launch(rig.timer, at(30), endless, "later");
  }
  rig.timer.pause();
  rig.simulated.now_ms = 60'000;
  CHECK(rig.timer.under_way());
  CHECK(rig.charged_us() == 60'000'000);
  CHECK(rig.timer.running().kernel == "spin");
}

TEST_CASE("work that waits in another stream for a function of the client's is none yet") {
  Rig rig;
  launch(rig.timer, at(10), 5);
  call_client(rig.timer, at(20), endless);
  launch(rig.timer, at(10), 5);
  wait_for(rig.timer, at(10), at(20));
  launch(rig.timer, at(10), 5);
  rig.timer.pause();
  rig.simulated.now_ms = 100;
  CHECK_FALSE(rig.timer.under_way());
  CHECK(rig.charged_us() == 10'000);
}

TEST_CASE("functions of the client's without end cost no memory without end, and hide no kernel") {
  Rig rig;
  for (int n = 0; n < 1000; ++n) {
    call_client(rig.timer, at(10), n == 0 ? 100 : 0);
    launch(rig.timer, at(10), n == 999 ? endless : 0.001);
    rig.timer.pause();
  }
  CHECK(rig.simulated.living.size() < 200);
  rig.simulated.now_ms = 1000;
  CHECK(rig.timer.under_way());
}
