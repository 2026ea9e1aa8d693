#include "worker/moving/session_parking.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>

#include "base/text_fields.h"
#include "worker/image/device_pairs.h"

namespace gpupool::worker {
namespace {

constexpr int driver_with_pairs = 13000;  // 580 is CUDA 13.0

CUuuid uuid_from(const std::string& text) {
  CUuuid uuid{};
  static_cast<void>(
      parse_hex(text, {reinterpret_cast<std::uint8_t*>(uuid.bytes), sizeof uuid.bytes}));  // checked before
  return uuid;
}

}  // namespace

std::string SessionParking::obstacle() const {
  if (work_.stopped()) return "working";
  // The driver's checkpoint is not documented to carry clients of MPS.
  if (equipment_.state.mps != Mps::none) return "mps";
  bool shared = equipment_.exports.gives_out_any();
  for (const MemoryAccount& account : equipment_.state.memory) shared = shared || account.imports() > 0;
  return equipment_.parking.obstacles.first(equipment_.parking.mover.able(), shared);
}

MemoryReport SessionParking::report() const {
  const MoveObstacle moving = conversation_.move_obstacle();
  return {equipment_.parking.mover.place().in_host(), obstacle(),
          moving == MoveObstacle::none ? "" : name_of(moving)};
}

bool SessionParking::drain(int timeout_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  while (!conversation_.drained()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

MoveResult SessionParking::park(int drain_ms) {
  if (equipment_.parking.mover.place().in_host()) return {"", equipment_.parking.mover.place().bytes()};
  if (std::string known = obstacle(); !known.empty()) return {std::move(known)};
  if (!drain(drain_ms)) return {"busy"};
  const std::lock_guard moving(equipment_.parking.moving);
  const auto refusal = [this]() -> std::string {
    if (std::string known = obstacle(); !known.empty()) return known;
    return conversation_.busy() ? "busy" : "";
  };
  const auto bytes = [this] {
    std::uint64_t sum = 0;
    for (const MemoryAccount& account : equipment_.state.memory) sum += account.allocated();
    return sum;
  };
  return equipment_.parking.mover.park(std::chrono::milliseconds(std::max(drain_ms, 1)), refusal, bytes);
}

MoveResult SessionParking::resume(const std::vector<DeviceChange>& devices) {
  const std::lock_guard moving(equipment_.parking.moving);
  std::map<std::size_t, std::string> wishes;
  for (const DeviceChange& change : devices) {
    CUdevice device = 0;
    if (!equipment_.device(static_cast<std::int32_t>(change.ordinal), device)) return {"bad-share"};
    wishes[static_cast<std::size_t>(device)] = change.uuid;
  }
  const auto pairs = device_pairs(equipment_.parking.cards, wishes);
  if (!equipment_.parking.mover.place().in_host()) return {pairs && pairs->empty() ? "" : "resident"};
  if (!pairs) return {"resume-failed why=unknown-device"};
  if (!pairs->empty() && equipment_.profile.driver_version < driver_with_pairs) {
    return {"resume-failed why=old-driver"};
  }
  std::vector<CUcheckpointGpuPair> remapped;
  for (const auto& [from, to] : *pairs) remapped.push_back({uuid_from(from), uuid_from(to)});
  return equipment_.parking.mover.resume(remapped, [&] { change_cards(*pairs); });
}

/// The driver's ordinals stay; what they stand for has changed.
void SessionParking::change_cards(const std::vector<std::pair<std::string, std::string>>& pairs) {
  const std::lock_guard lock(equipment_.parking.identity);
  for (std::size_t ordinal = 0; ordinal < pairs.size(); ++ordinal) {
    equipment_.parking.cards[ordinal] = pairs[ordinal].second;
  }
  for (std::size_t n = 0; n < equipment_.profile.devices.size(); ++n) {
    DeviceDescription& shown = equipment_.profile.devices[n];
    const std::string& card = equipment_.parking.cards[static_cast<std::size_t>(equipment_.devices[n])];
    const auto found =
        std::find_if(equipment_.parking.machine.devices.begin(), equipment_.parking.machine.devices.end(),
                     [&](const DeviceDescription& device) { return device.uuid == card; });
    if (found == equipment_.parking.machine.devices.end()) continue;
    const auto ordinal = shown.ordinal;
    const auto priorities = shown.stream_priorities;
    shown = *found;
    shown.ordinal = ordinal;
    shown.stream_priorities = priorities;
  }
}

}  // namespace gpupool::worker
