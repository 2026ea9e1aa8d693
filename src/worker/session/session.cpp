#include "worker/session/session.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "worker/driver/capture.h"

namespace gpupool::worker {
namespace {

/// More client threads than this share one per-thread stream.
constexpr std::uint32_t max_lanes = 4096;

}  // namespace

Session::Session(Equipment& equipment, DeviceWork& work)
    : api(equipment.api), equipment_(equipment), work_(work) {
  handles.per_thread_stream = [this] { return per_thread_stream(); };
  work_.selects(nullptr, 0);
}

void Session::open(const std::vector<std::uint64_t>& bases) {
  for (std::size_t n = 0; n < equipment_.devices.size(); ++n) {
    const CUdevice device = equipment_.devices[n];
    CUcontext context = nullptr;
    // A thread that waits for the device sleeps: there are more sessions on a node than processors.
    static_cast<void>(api.cuDevicePrimaryCtxSetFlags_v2_(device, CU_CTX_SCHED_BLOCKING_SYNC));
    const CUresult result = api.cuDevicePrimaryCtxRetain_(&context, device);
    if (result != CUDA_SUCCESS) {
      throw std::runtime_error("cuDevicePrimaryCtxRetain failed with " + std::to_string(result));
    }
    api.cuCtxSetCurrent_(context);
    adopt_context(context, device);
    if (int least = 0, greatest = 0; api.cuCtxGetStreamPriorityRange_(&least, &greatest) == CUDA_SUCCESS) {
      equipment_.profile.devices[n].stream_priorities = {least, greatest};
    }
    if (n == 0) home_ = context;
    handles.bind(wire::Kind::context,
                 wire::Handle{wire::Kind::context, 0, static_cast<std::uint32_t>(n)}.value(), context);
    auto& arenas = equipment_.arenas;
    if (arenas.size() <= n) {
      arenas.push_back(std::make_unique<DeviceArena>(api, device, equipment_.state.memory[n], bases[n]));
    }
  }
  static_cast<void>(select(nullptr));
}

Session::~Session() {
  if (!is_open()) return;
  for (const auto& [context, device] : device_of_) {
    api.cuCtxSetCurrent_(context);
    api.cuCtxSynchronize_();
    in_use.wait_unused(context);
    work_.forgets_context(context);
  }
  api.cuCtxSetCurrent_(home_);
  staging_.reset();
  for (const auto& [value, link] : links) api.cuLinkDestroy_(link->state);
  links.clear();
  end_images();
  end_arrays();
  limits.clear();
  handles.each(wire::Kind::event,
               [&](std::uint64_t, void* h) { api.cuEventDestroy_v2_(static_cast<CUevent>(h)); });
  end_graphs();
  end_streams_and_contexts();
  for (const auto& arena : equipment_.arenas) arena->clear();
  equipment_.exports.clear();
  physical.clear();
  for (const CUdevice device : equipment_.devices) api.cuDevicePrimaryCtxRelease_v2_(device);
  equipment_.parking.obstacles.clear();
}

void Session::end_images() {
  for (const auto& [value, image] : images) {
    if (image->is_library) {
      api.cuLibraryUnload_(image->library);
    } else {
      api.cuModuleUnload_(image->module);
    }
  }
  images.clear();
}

void Session::end_arrays() {
  handles.each_value(wire::Kind::texture_object,
                     [&](std::uint64_t value) { api.cuTexObjectDestroy_(value); });
  handles.each_value(wire::Kind::surface_object,
                     [&](std::uint64_t value) { api.cuSurfObjectDestroy_(value); });
  handles.each(wire::Kind::array, [&](std::uint64_t value, void* array) {
    if (!arrays.is_part(value)) api.cuArrayDestroy_(static_cast<CUarray>(array));
  });
  handles.each(wire::Kind::mipmapped_array, [&](std::uint64_t, void* array) {
    api.cuMipmappedArrayDestroy_(static_cast<CUmipmappedArray>(array));
  });
  arrays.clear();
}

void Session::end_graphs() {
  handles.each(wire::Kind::graph_exec,
               [&](std::uint64_t, void* h) { api.cuGraphExecDestroy_(static_cast<CUgraphExec>(h)); });
  handles.each(wire::Kind::graph, [&](std::uint64_t value, void* h) {
    if (!graphs.is_owned(value)) api.cuGraphDestroy_(static_cast<CUgraph>(h));
  });
  graphs.clear();
}

void Session::end_streams_and_contexts() {
  handles.each(wire::Kind::stream,
               [&](std::uint64_t, void* h) { api.cuStreamDestroy_v2_(static_cast<CUstream>(h)); });
  for (const auto& [lane, stream] : per_thread_streams_) api.cuStreamDestroy_v2_(stream);
  per_thread_streams_.clear();
  for (const auto& [context, stream] : side_streams_) api.cuStreamDestroy_v2_(stream);
  side_streams_.clear();
  while (!green_contexts.empty()) {
    const std::uint64_t green = green_contexts.begin()->first;
    if (const CUcontext made = context_of_green(green); made != nullptr) abandon_context(made);
    forget_green_context(green);
  }
  handles.each(wire::Kind::green_context,
               [&](std::uint64_t, void* green) { api.cuGreenCtxDestroy_(static_cast<CUgreenCtx>(green)); });
  handles.each(wire::Kind::context, [&](std::uint64_t value, void* h) {
    if (!is_primary(value)) api.cuCtxDestroy_v2_(static_cast<CUcontext>(h));
  });
  shares.clear();
}

CUresult Session::select(CUcontext context) {
  const CUresult result = api.cuCtxSetCurrent_(context);
  if (result == CUDA_SUCCESS) {
    current_ = context;
    const std::int32_t number = ordinal_of(context);
    work_.selects(context, number < 0 ? 0 : static_cast<std::size_t>(number));
    handles.owned_by(context);
  }
  return result;
}

std::int32_t Session::ordinal_of(CUcontext context) const {
  const auto found = device_of_.find(context);
  return found == device_of_.end() ? -1 : equipment_.ordinal(found->second);
}

std::uint64_t Session::name_of_current() const {
  return current_ == nullptr ? 0 : handles.name_of(wire::Kind::context, current_);
}

std::vector<CUcontext> Session::contexts() const {
  std::vector<CUcontext> all;
  for (const auto& [context, device] : device_of_) all.push_back(context);
  return all;
}

void Session::abandon_context(CUcontext context) {
  in_use.wait_unused(context);
  work_.forgets_context(context);
  if (staging_) staging_->forget(context);
  std::erase_if(per_thread_streams_, [&](const auto& entry) { return entry.first.first == context; });
  side_streams_.erase(context);
  device_of_.erase(context);
  for (const auto kind : {wire::Kind::array, wire::Kind::mipmapped_array, wire::Kind::texture_reference,
                          wire::Kind::texture_object, wire::Kind::surface_object}) {
    handles.forget_owned_by(kind, context);
  }
  arrays.release_context(context);
  limits.release_context(context);
  if (context == current_) select(nullptr);
}

CUcontext Session::context_of_green(std::uint64_t green) const {
  CUcontext context = nullptr;
  const auto made = green_contexts.find(green);
  if (made != green_contexts.end()) {
    static_cast<void>(handles.find(wire::Kind::context, made->second, context));
  }
  return context;
}

void Session::forget_green_context(std::uint64_t green) {
  const auto made = green_contexts.find(green);
  if (made == green_contexts.end()) return;
  handles.drop(wire::Kind::context, made->second);
  green_contexts.erase(made);
}

bool Session::is_primary(std::uint64_t context) const {
  return wire::Handle::from(context).index < equipment_.devices.size();
}

CUdevice Session::device_of_current() const {
  const auto found = device_of_.find(current_);
  return found == device_of_.end() ? equipment_.devices.front() : found->second;
}

MemoryAccount* Session::account_of_current() {
  const std::int32_t number = ordinal_of(current_);
  return number < 0 ? nullptr : &equipment_.state.memory[static_cast<std::size_t>(number)];
}

bool Session::idle() {
  return std::all_of(device_of_.begin(), device_of_.end(), [&](const auto& one) { return idle(one.first); });
}

bool Session::listed_idle() {
  return std::all_of(device_of_.begin(), device_of_.end(),
                     [&](const auto& one) { return work_.listed_idle(one.first); });
}

CUresult Session::synchronize_device(CUdevice device) {
  work_.waits();
  CUresult first = CUDA_SUCCESS;
  for (const auto& [context, its_device] : device_of_) {
    if (its_device != device) continue;
    if (context != current_) api.cuCtxSetCurrent_(context);
    const CUresult result =
        graphs.captures.empty() ? work_.wait_for({context})() : finish_beside_captures(context);
    if (first == CUDA_SUCCESS) first = result;
    if (context != current_) api.cuCtxSetCurrent_(current_);
  }
  return first;
}

CUresult Session::finish_beside_captures(CUcontext context) {
  CUresult first = work_.finish(context);
  const auto finish = [&](CUstream stream) {
    if (in_capture(api, stream)) return;  // what it was given before is finished
    const CUresult result = api.cuStreamSynchronize_(stream);
    if (first == CUDA_SUCCESS) first = result;
  };
  handles.each_owned_by(wire::Kind::stream, context,
                        [&](std::uint64_t, void* stream) { finish(static_cast<CUstream>(stream)); });
  for (const auto& [key, stream] : per_thread_streams_) {
    if (key.first == context) finish(stream);
  }
  return first;
}

CUresult Session::synchronize_all() {
  CUresult first = CUDA_SUCCESS;
  for (const CUdevice device : equipment_.devices) {
    const CUresult result = synchronize_device(device);
    if (first == CUDA_SUCCESS) first = result;
  }
  return first;
}

/// An explicit stream has the rules of the per-thread stream: it waits for the legacy stream and is waited
/// for by it. The driver's own would be that of the executing thread, the same for all threads of the client.
CUstream Session::per_thread_stream() {
  const auto key = std::pair(current_, lane_ < max_lanes ? lane_ : 0);
  const auto found = per_thread_streams_.find(key);
  if (found != per_thread_streams_.end()) return found->second;
  CUstream made = nullptr;
  if (current_ == nullptr || api.cuStreamCreate_(&made, CU_STREAM_DEFAULT) != CUDA_SUCCESS)
    return CU_STREAM_PER_THREAD;
  per_thread_streams_[key] = made;
  return made;
}

bool Session::captures(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return !graphs.captures.empty() && stream != nullptr && stream != CU_STREAM_LEGACY &&
         api.cuStreamIsCapturing_(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

Staging& Session::staging() {
  if (!staging_) {
    // In a context that lives as long as the session: pinned memory goes with the context it was made in.
    api.cuCtxSetCurrent_(home_);
    staging_.emplace(api);
    api.cuCtxSetCurrent_(current_);
  }
  return *staging_;
}

CUresult Session::side_stream(CUcontext context, CUstream& out) {
  const auto [found, is_new] = side_streams_.try_emplace(context, nullptr);
  const CUresult result = is_new ? api.cuStreamCreate_(&found->second, CU_STREAM_NON_BLOCKING) : CUDA_SUCCESS;
  out = found->second;
  if (result != CUDA_SUCCESS) side_streams_.erase(found);
  return result;
}

MoveObstacle Session::obstacle_to_moving(bool thorough) {
  if (!graphs.captures.empty()) return MoveObstacle::capture;
  if (graphs.has_allocations) return MoveObstacle::graphs;  // their memory may outlive them
  if (equipment_.exports.gives_out_any()) return MoveObstacle::ipc;
  return journal.obstacle(handles, thorough);
}

}  // namespace gpupool::worker
