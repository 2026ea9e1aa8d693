#include "worker/device_time/device_turns.h"

#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <utility>

namespace gpupool::worker {

enforcer::Gauge::Reading DeviceTurns::Device::look() {
  const Residence::Visit visit(&residence);
  if (!visit) return {known_ns, 0, false};  // memory leaves only when all work is done
  const DeviceProgress progress = timer.look(meter);
  known_ns = progress.busy_ns;
  return {progress.busy_ns, progress.first_unfinished, progress.in_flight};
}

DeviceTurns::DeviceTurns(WorkerState& state, DeviceTimer& timer, Residence& residence, SoftwareWork& work,
                         enforcer::SessionFacts facts)
    : state_(state), timer_(timer), residence_(residence), facts_(std::move(facts)) {
  bool all = true;
  bool strict = true;
  // Work is stopped as a whole: what runs on another device of the session would stand still with it.
  SoftwareWork* const stoppable = state.devices.size() == 1 && work.able() ? &work : nullptr;
  for (std::size_t n = 0; n < state.devices.size(); ++n) {
    devices_.emplace_back(timer, residence_, stoppable);
    open(n);
    all = all && devices_[n].turn != nullptr;
    strict = strict && state.devices[n].strict;
  }
  state.enforcement = state.mps == Mps::partition ? Enforcement::mps
                      : !all                      ? Enforcement::none
                      : strict                    ? Enforcement::hard
                                                  : Enforcement::soft;
}

void DeviceTurns::open(std::size_t ordinal) {
  const DeviceShare& share = state_.devices[ordinal];
  Device& device = devices_[ordinal];
  device.uuid = share.uuid;
  device.turn.reset();
  if (share.enforcer.empty()) return;
  // The books of a node's devices lie side by side, each under its device's id.
  const std::string path = std::filesystem::path(share.enforcer).replace_filename(share.uuid);
  try {
    device.turn =
        std::make_unique<enforcer::DeviceTurn>(path, state_.milli[ordinal], share.strict, device, facts_);
  } catch (const std::runtime_error& failure) {
    std::fprintf(stderr, "gpupool-worker: device time is not enforced: %s\n", failure.what());
  }
}

bool DeviceTurns::before_work(std::size_t ordinal, std::uint64_t key) {
  if (ordinal != last_) {
    // A session that waits for a device while it keeps another could wait for somebody who does the reverse.
    paused(timer_.pause());
    last_ = ordinal;
  }
  Device& device = devices_[ordinal];
  if (device.uuid != state_.devices[ordinal].uuid) {  // the session was resumed onto another device
    const std::lock_guard lock(opening_);
    open(ordinal);
    if (device.turn == nullptr && state_.mps != Mps::partition) state_.enforcement = Enforcement::none;
  }
  if (device.turn == nullptr) return true;
  state_.work.awaits_turn.store(true, std::memory_order_relaxed);
  const bool admitted = device.turn->before_work(key);
  state_.work.awaits_turn.store(false, std::memory_order_relaxed);
  return admitted;
}

DeviceMeter* DeviceTurns::meter(std::size_t ordinal) {
  return &devices_[ordinal].meter;
}

void DeviceTurns::paused(std::uint64_t piece) {
  for (Device& device : devices_) {
    if (device.turn) device.turn->paused(piece);
  }
}

void DeviceTurns::tidy() {
  const std::lock_guard lock(opening_);
  for (Device& device : devices_) {
    if (device.turn) device.turn->tidy();
  }
}

bool DeviceTurns::contended() const {
  for (const Device& device : devices_) {
    if (device.turn && device.turn->contended()) return true;
  }
  return false;
}

}  // namespace gpupool::worker
