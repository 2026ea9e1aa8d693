#include "worker/session/executor.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

#include "generated/message_ids.h"
#include "profile/device_profile.h"
#include "profile/driver_probe.h"
#include "wire/hello.h"

namespace gpupool::worker {

Executor::Executor(const std::string& driver_path, WorkerState& worker_state)
    : driver(driver_path),
      api(driver.api),
      image_cache(worker_state.image_cache, {worker_state.image_cache_mib << 20U}),
      parking{probe_driver(driver.library()), open_process_checkpoint(driver.library())},
      work(driver, worker_state, parking.residence, [this] { return host_calls.under_way(); }),
      state(worker_state),
      completions(
          api, outlet, executed, [this] { return take_deferred(); }, &parking.residence,
          [this] { shares.tell(state.memory, outlet); }) {
  if (state.user) export_door.emplace(exports.office(), *state.user, exports);
  const DeviceProfile& all = parking.machine;
  profile_.driver_version = all.driver_version;
  for (const DeviceShare& share : state.devices) {
    // By UUID: ordinals depend on the driver's environment, and the wrong device would be someone else's.
    const DeviceDescription* found = nullptr;
    for (const auto& device : all.devices) {
      if (device.uuid == share.uuid) found = &device;
    }
    if (found == nullptr) throw std::runtime_error("the driver has no device with UUID " + share.uuid);
    CUdevice device = 0;
    if (api.cuDeviceGet_(&device, found->ordinal) != CUDA_SUCCESS) {
      throw std::runtime_error("the driver refuses device " + std::to_string(found->ordinal));
    }
    profile_.devices.push_back(*found);
    profile_.devices.back().ordinal = static_cast<int>(devices_.size());
    devices_.push_back(device);
  }
  if (is_software()) driver_log_.emplace(driver);
  handles.per_thread_stream = [this] { return per_thread_stream(); };
}

Executor::~Executor() {
  end_conversation();  // calls that wait for the client would keep the threads that are joined now
}

void Executor::open_devices(const std::vector<std::uint64_t>& bases) {
  for (std::size_t n = 0; n < devices_.size(); ++n) {
    CUcontext context = nullptr;
    const CUresult result = api.cuDevicePrimaryCtxRetain_(&context, devices_[n]);
    if (result != CUDA_SUCCESS) {
      throw std::runtime_error("cuDevicePrimaryCtxRetain failed with " + std::to_string(result));
    }
    api.cuCtxSetCurrent_(context);
    adopt_context(context, devices_[n]);
    if (int least = 0, greatest = 0; api.cuCtxGetStreamPriorityRange_(&least, &greatest) == CUDA_SUCCESS) {
      profile_.devices[n].stream_priorities = {least, greatest};
    }
    if (n == 0) home_ = context;
    handles.bind(wire::Kind::context,
                 wire::Handle{wire::Kind::context, 0, static_cast<std::uint32_t>(n)}.value(), context);
    if (arenas_.size() <= n) {
      arenas_.push_back(std::make_unique<DeviceArena>(api, devices_[n], state.memory[n], bases[n]));
    }
  }
  current_ = nullptr;
  work.selects(nullptr, 0);
  api.cuCtxSetCurrent_(nullptr);
}

/// Another process took the session over: nothing of the old one's state may be seen by it.
void Executor::reset() {
  for (const auto& [context, device] : device_of_) {
    api.cuCtxSetCurrent_(context);
    api.cuCtxSynchronize_();
    forgets_context(context);
  }
  api.cuCtxSetCurrent_(home_);
  staging_.reset();
  copy_out_.reset();
  completions.reset();
  links.clear();
  for (const auto& [value, image] : images) {
    if (image->is_library) {
      api.cuLibraryUnload_(image->library);
    } else {
      api.cuModuleUnload_(image->module);
    }
  }
  images.clear();
  end_arrays();
  limits.clear();
  charges.forget();
  handles.each(wire::Kind::event,
               [&](std::uint64_t, void* h) { api.cuEventDestroy_v2_(static_cast<CUevent>(h)); });
  handles.each(wire::Kind::graph_exec,
               [&](std::uint64_t, void* h) { api.cuGraphExecDestroy_(static_cast<CUgraphExec>(h)); });
  handles.each(wire::Kind::graph, [&](std::uint64_t value, void* h) {
    if (!graphs.is_owned(value)) api.cuGraphDestroy_(static_cast<CUgraph>(h));
  });
  graphs.clear();
  handles.each(wire::Kind::stream,
               [&](std::uint64_t, void* h) { api.cuStreamDestroy_v2_(static_cast<CUstream>(h)); });
  for (const auto& [lane, stream] : per_thread_streams_) api.cuStreamDestroy_v2_(stream);
  per_thread_streams_.clear();
  end_green_contexts();
  handles.each(wire::Kind::context, [&](std::uint64_t value, void* h) {
    if (wire::Handle::from(value).index >= devices_.size()) api.cuCtxDestroy_v2_(static_cast<CUcontext>(h));
  });
  for (const auto& arena : arenas_) arena->clear();
  journal.clear();
  exports.clear();
  physical.clear();
  for (const CUdevice device : devices_) api.cuDevicePrimaryCtxRelease_v2_(device);
  handles.clear();
  device_of_.clear();
  refused_maps_.clear();
  parking.kept.clear();
  parking.obstacles.clear();
  static_cast<void>(take_deferred());
}

bool Executor::device(std::int32_t ordinal, CUdevice& out) const {
  if (ordinal < 0 || static_cast<std::size_t>(ordinal) >= devices_.size()) return false;
  out = devices_[static_cast<std::size_t>(ordinal)];
  return true;
}

std::int32_t Executor::ordinal(CUdevice device) const {
  const auto found = std::find(devices_.begin(), devices_.end(), device);
  return found == devices_.end() ? -1 : static_cast<std::int32_t>(found - devices_.begin());
}

unsigned Executor::capability() const {
  if (profile_.devices.empty()) return 0;
  const auto get = [this](int attribute) {
    const auto& attributes = profile_.devices[0].attributes;
    const auto found = attributes.find(attribute);
    return found == attributes.end() ? 0u : static_cast<unsigned>(found->second);
  };
  return get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
         get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
}

MemoryAccount* Executor::account_of_current() {
  const auto found = device_of_.find(current_);
  const std::int32_t number = found == device_of_.end() ? -1 : ordinal(found->second);
  return number < 0 ? nullptr : &state.memory[static_cast<std::size_t>(number)];
}

DeviceArena* Executor::arena(std::int32_t ordinal) {
  if (ordinal < 0 || static_cast<std::size_t>(ordinal) >= arenas_.size()) return nullptr;
  return arenas_[static_cast<std::size_t>(ordinal)].get();
}

bool Executor::reachable_by_host(std::uint64_t address, std::uint64_t size) const {
  for (const auto& arena : arenas_) {
    if (arena->reachable_by_host(address, size)) return true;
  }
  return false;
}

std::shared_ptr<PhysicalMemory> Executor::memory_at(std::uint64_t address, std::uint64_t size) const {
  for (const auto& arena : arenas_) {
    if (arena->contains(address)) return arena->memory_at(address, size);
  }
  return nullptr;
}

bool Executor::readable(std::uint64_t address, std::uint64_t size) const {
  if (size == 0 || address + size < address) return false;
  for (const auto& arena : arenas_) {
    if (arena->contains(address)) return arena->covers(address, size);
  }
  return true;
}

/// What is captured is no work yet.
bool Executor::captured(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return !graphs.captures.empty() && stream != nullptr && stream != CU_STREAM_LEGACY &&
         api.cuStreamIsCapturing_(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

CUresult Executor::submits(CUstream stream, std::uint64_t kernels, std::uint64_t key,
                           std::string_view kernel) {
  return work.submits(stream, captured(stream), kernels, key, kernel);
}

void Executor::forgets(CUstream stream) {
  retires(stream);
  parking.obstacles.capture_ended(stream);
  work.forgets(stream);
}

Staging& Executor::staging() {
  if (!staging_) {
    // In a context that lives as long as the session: pinned memory goes with the context it was made in.
    api.cuCtxSetCurrent_(home_);
    staging_.emplace(api);
    api.cuCtxSetCurrent_(current_);
  }
  return *staging_;
}

CopyOut& Executor::copy_out() {
  if (!copy_out_) copy_out_.emplace(api, home_);
  return *copy_out_;
}

void Executor::tick() {
  work.charge();
  publish_obstacle(true);
  work.look();
}

void Executor::make_do(const std::vector<ShareWish>& wishes, int wait_ms) {
  shares.wish(wishes);
  completions.nudge();
  static_cast<void>(shares.await_answers(std::chrono::milliseconds(wait_ms)));
}

void Executor::shares_decided() {
  shares.decided();
  completions.nudge();
}

void Executor::defer(CUresult error, std::uint16_t message) {
  const std::lock_guard lock(deferring_);
  if (deferred_.error != CUDA_SUCCESS) return;
  deferred_ = {error, message};
}

Deferred Executor::take_deferred() {
  const std::lock_guard lock(deferring_);
  return std::exchange(deferred_, {});
}

bool Executor::forget_refused_map(std::int32_t device, std::uint64_t address) {
  return std::erase_if(refused_maps_, [&](const RefusedMap& map) {
           return map.device == device && map.address == address;
         }) != 0;
}

void Executor::retry_refused_maps() {
  for (const auto& map : refused_maps_) {
    DeviceArena* const place = arena(map.device);
    const CUresult result = place == nullptr ? CUDA_ERROR_INVALID_DEVICE : place->map(map.address, map.size);
    if (result != CUDA_SUCCESS) defer(result, static_cast<std::uint16_t>(MessageId::MapMemory));
  }
  refused_maps_.clear();
}

}  // namespace gpupool::worker
