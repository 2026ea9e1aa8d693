#include "worker/moving/session_resume.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "generated/message_ids.h"
#include "worker/conversation/call.h"
#include "worker/conversation/conversation.h"
#include "worker/conversation/dispatch.h"
#include "worker/conversation/link_state.h"
#include "worker/image/move_rules.h"
#include "worker/moving/image_content.h"
#include "worker/session/session.h"

namespace gpupool::worker {
namespace {

/// Of all module images together: a few bytes of a manifest can stand for much memory.
constexpr std::uint64_t most_contents = std::uint64_t{16} << 30;

[[noreturn]] void cannot(const std::string& why) {
  throw std::runtime_error("the session cannot be resumed here: " + why);
}

CUcontext primary_context(const Session& session, std::size_t device) {
  CUcontext context = nullptr;
  const auto handle = wire::Handle{wire::Kind::context, 0, static_cast<std::uint32_t>(device)}.value();
  if (!session.handles.find(wire::Kind::context, handle, context)) cannot("a device has no context");
  return context;
}

std::vector<std::byte> room_for(const SessionImage::Bytes& bytes, std::uint64_t most) {
  if (bytes.size > most) cannot("its module images, or what its program has not heard yet, are too large");
  return std::vector<std::byte>(static_cast<std::size_t>(bytes.size));
}

}  // namespace

SessionResume::SessionResume(Conversation& conversation, const SessionImage& image, ChunkSource& source)
    : conversation_(conversation),
      session_(conversation.session()),
      equipment_(conversation.equipment()),
      image_(image),
      source_(source) {}

void SessionResume::run() {
  check_origin();
  if (image_.devices.empty()) return;
  open_devices();
  fetch_contents();
  repeat_calls();
  make_memory();
  map_memory();
  find_variables();
  fill(targets_);
  need(session_.synchronize_all(), "cuCtxSynchronize");
  allow_access();
  windows_.clear();
  Usage& usage = equipment_.state.usage;
  std::atomic<std::uint64_t>* const counters[] = {&usage.device_ns, &usage.kernels, &usage.posts,
                                                  &usage.asks,      &usage.ask_ns,  &usage.bytes_in,
                                                  &usage.bytes_out};
  for (std::size_t n = 0; n < image_.usage.size(); ++n) *counters[n] = image_.usage[n];
  take_up_link(link_);
}

void SessionResume::check_origin() const {
  if (image_.fingerprint != table_fingerprint) cannot("it was written by a worker of another version");
  if (image_.session != equipment_.state.session_id) cannot("the image is another session's");
  const std::uint32_t epoch = equipment_.state.gate.view(boottime_ns()).epoch;
  if (epoch <= image_.epoch) {
    cannot("its image is of epoch " + std::to_string(image_.epoch) + ", and this worker's lease of " +
           std::to_string(epoch));
  }
  if (image_.devices.empty()) return;  // nobody has come yet
  if (image_.devices.size() != equipment_.devices.size()) {
    cannot("it has " + std::to_string(image_.devices.size()) + " devices, and this worker " +
           std::to_string(equipment_.devices.size()));
  }
  for (std::size_t n = 0; n < equipment_.devices.size(); ++n) {
    const SessionImage::Device& from = image_.devices[n];
    int major = 0, minor = 0;
    equipment_.api.cuDeviceGetAttribute_(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                         equipment_.devices[n]);
    equipment_.api.cuDeviceGetAttribute_(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                                         equipment_.devices[n]);
    if (major != from.major || minor != from.minor) {
      cannot("it comes from a device of compute capability " + std::to_string(from.major) + "." +
             std::to_string(from.minor) + ", and this one has " + std::to_string(major) + "." +
             std::to_string(minor));
    }
  }
}

void SessionResume::open_devices() {
  std::vector<std::uint64_t> bases;
  for (const auto& device : image_.devices) bases.push_back(device.arena);
  session_.open(bases);
  conversation_.belongs_to(image_.client);
  for (std::size_t n = 0; n < bases.size(); ++n) {
    // The program holds addresses: elsewhere they would mean nothing.
    if (equipment_.arenas[n]->base() != bases[n]) cannot("its device addresses are not free in this process");
    if (image_.devices[n].granularity % equipment_.arenas[n]->granularity() != 0) {
      cannot("memory is mapped in larger granules here");
    }
  }
}

/// What has to be here before the calls are repeated: module images, and the conversation with the client.
void SessionResume::fetch_contents() {
  std::vector<Target> targets;
  std::uint64_t room = most_contents;
  for (const SessionImage::Call& call : image_.calls) {
    if (!call.content) continue;
    contents_.push_back(room_for(*call.content, std::min(room, max_image + 1)));
    room -= call.content->size;
  }
  std::size_t n = 0;
  for (const SessionImage::Call& call : image_.calls) {
    if (call.content) targets.push_back({&*call.content, {}, contents_[n++].data()});
  }
  link_ = room_for(image_.link, LinkState::max_bytes);
  targets.push_back({&image_.link, {}, link_.data()});
  fill(targets);
}

void SessionResume::repeat_calls() {
  std::size_t n = 0;
  for (const SessionImage::Call& call : image_.calls) {
    repeat(call, call.content ? std::move(contents_[n++]) : std::vector<std::byte>());
  }
}

void SessionResume::repeat(const SessionImage::Call& call, std::vector<std::byte> content) {
  const std::size_t row = call.message - wire::first_call;
  if (call.message < wire::first_call || row >= message_count) cannot("the image contradicts itself");
  CUcontext context = nullptr;
  // An object may have outlived the context in which it was made.
  if (!session_.handles.find(wire::Kind::context, call.context, context) && call.context != 0)
    context = session_.home();
  need(session_.select(context), "cuCtxSetCurrent");
  Answer answer;
  Call again(conversation_, answer, call.lane);
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  if (call.message == static_cast<std::uint16_t>(MessageId::LoadImage)) {
    if (content.empty() || content.back() != std::byte{0}) cannot("the image contradicts itself");
    result = load_moved_image(again, call.body, std::move(content), call.kernels);
  } else {
    const MoveRule& rule = move_rules[row];
    if (rule.names == nullptr || rule.obstacle != MoveObstacle::none) cannot("the image contradicts itself");
    wire::Writer out(answer.fields);
    wire::Reader in(call.body);
    result = dispatch_table[row].run(again, in, out);
    if (result == CUDA_SUCCESS) {
      session_.journal.note(call.message, call.lane, session_.handles.name_of(wire::Kind::context, context),
                            call.body, session_.handles);
    }
  }
  if (result != CUDA_SUCCESS) {
    cannot(std::string(message_name(call.message)) + " failed with error " + std::to_string(result));
  }
}

void SessionResume::make_memory() {
  for (const SessionImage::Memory& one : image_.memory) {
    DeviceArena* const arena = equipment_.arena(one.device);
    if (arena == nullptr || one.size == 0 || one.size % arena->granularity() != 0) {
      cannot("the image contradicts itself");
    }
    CUmemAllocationProp properties = arena->properties();
    properties.allocFlags.compressionType = one.compression;
    properties.allocFlags.gpuDirectRDMACapable = one.rdma;
    std::shared_ptr<PhysicalMemory> memory;
    const CUresult result =
        PhysicalMemory::create(equipment_.api, equipment_.state.memory[static_cast<std::size_t>(one.device)],
                               one.size, properties, memory);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
      cannot("its memory has no room in the share of device " + std::to_string(one.device) + ", or on it");
    }
    need(result, "cuMemCreate");
    memory->compression = one.compression;
    memory->rdma = one.rdma;
    if (one.handle != 0) {
      if (!session_.handles.vacant(wire::Kind::allocation, one.handle))
        cannot("the image contradicts itself");
      session_.handles.bind(wire::Kind::allocation, one.handle, memory->handle());
      session_.physical.emplace(one.handle, memory);
    }
    memory_.push_back(std::move(memory));
  }
}

void SessionResume::map_memory() {
  std::vector<DeviceRange> whole(memory_.size());
  for (const SessionImage::Mapping& mapping : image_.mappings) {
    DeviceArena& arena = *equipment_.arena(mapping.place);
    const auto& memory = memory_[mapping.memory];
    need(arena.map(mapping.address, mapping.size, mapping.offset, memory), "cuMemMap");
    if (mapping.offset != 0 || mapping.size != memory->size() ||
        mapping.access != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
      continue;
    }
    need(arena.set_access(mapping.address, mapping.size, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
         "cuMemSetAccess");
    whole[mapping.memory] = {nullptr, mapping.address, mapping.size,
                             arena.reachable_by_host(mapping.address, mapping.size)};
  }
  for (std::size_t n = 0; n < memory_.size(); ++n) {
    DeviceRange range = whole[n];
    if (range.size == 0) {
      windows_.emplace_back(equipment_.api, memory_[n]);
      range = {nullptr, windows_.back().address(), memory_[n]->size(), false};
    }
    range.context = primary_context(session_, static_cast<std::size_t>(image_.memory[n].device));
    targets_.push_back({&image_.memory[n].bytes, range, nullptr});
  }
}

void SessionResume::allow_access() {
  for (const SessionImage::Mapping& mapping : image_.mappings) {
    if (mapping.access == CU_MEM_ACCESS_FLAGS_PROT_NONE) continue;
    need(equipment_.arena(mapping.place)
             ->set_access(mapping.address, mapping.size, static_cast<CUmemAccess_flags>(mapping.access)),
         "cuMemSetAccess");
  }
}

void SessionResume::find_variables() {
  for (const SessionImage::Variable& variable : image_.variables) {
    const auto found = session_.images.find(variable.image);
    if (found == session_.images.end()) cannot("the image contradicts itself");
    const Image& image = *found->second;
    DeviceRange range;
    range.context = session_.home();
    if (variable.context != 0 &&
        !session_.handles.find(wire::Kind::context, variable.context, range.context)) {
      cannot("the image contradicts itself");
    }
    need(equipment_.api.cuCtxSetCurrent_(range.context), "cuCtxSetCurrent");
    std::size_t size = 0;
    need(image.is_library
             ? equipment_.api.cuLibraryGetGlobal_(&range.address, &size, image.library, variable.name.c_str())
             : equipment_.api.cuModuleGetGlobal_v2_(&range.address, &size, image.module,
                                                    variable.name.c_str()),
         "cuModuleGetGlobal");
    if (size != variable.bytes.size) cannot("the variable " + variable.name + " has another size here");
    range.size = size;
    targets_.push_back({&variable.bytes, range, nullptr});
  }
}

void SessionResume::fill(const std::vector<Target>& targets) {
  constexpr std::uint64_t piece = SessionImage::chunk_bytes;
  std::map<std::uint32_t, std::vector<std::pair<const Target*, std::uint64_t>>> wanted;
  std::vector<std::uint32_t> order;
  for (const Target& target : targets) {
    const auto& bytes = *target.bytes;
    for (std::size_t n = 0; n < bytes.chunks.size(); ++n) {
      const std::uint64_t offset = n * piece;
      if (bytes.chunks[n] == SessionImage::zeros) {
        clear(target, offset, std::min(piece, bytes.size - offset));
        continue;
      }
      auto& places = wanted[bytes.chunks[n]];
      if (places.empty()) order.push_back(bytes.chunks[n]);
      places.emplace_back(&target, offset);
    }
  }
  source_.announce(order);
  Staging& staging = session_.staging();
  std::size_t turn = 0;
  for (const std::uint32_t number : order) {
    const SessionImage::Chunk& chunk = image_.chunks[number];
    std::byte* memory = nullptr;
    need(staging.chunk(turn, memory), "cuEventSynchronize");
    const std::span<std::byte> content(memory, chunk.size);
    source_.read(chunk, number, content);
    if (sha256(content) != chunk.digest)
      cannot("chunk " + std::to_string(number) + " of its image is damaged");
    for (const auto& [target, offset] : wanted[number]) put(*target, offset, content, turn);
    turn ^= 1;
  }
  for (const std::size_t n : {0, 1}) need(staging.wait(n), "cuEventSynchronize");
}

void SessionResume::put(const Target& target, std::uint64_t offset, std::span<const std::byte> piece,
                        std::size_t staged) {
  if (target.here != nullptr || target.device.reachable) {
    std::byte* const to =
        target.here != nullptr ? target.here : reinterpret_cast<std::byte*>(target.device.address);
    std::memcpy(to + offset, piece.data(), piece.size());
    return;
  }
  // One event says when a staged piece is free again: copies of it in other contexts come first.
  need(session_.staging().wait(staged), "cuEventSynchronize");
  need(equipment_.api.cuCtxSetCurrent_(target.device.context), "cuCtxSetCurrent");
  need(equipment_.api.cuMemcpyHtoDAsync_v2_(target.device.address + offset, piece.data(), piece.size(),
                                            nullptr),
       "cuMemcpyHtoDAsync");
  need(session_.staging().used(staged, target.device.context, nullptr), "cuStreamSynchronize");
}

/// New memory of a driver need not be zeros.
void SessionResume::clear(const Target& target, std::uint64_t offset, std::uint64_t size) {
  if (target.here != nullptr) return;  // made so
  need(equipment_.api.cuCtxSetCurrent_(target.device.context), "cuCtxSetCurrent");
  need(equipment_.api.cuMemsetD8Async_(target.device.address + offset, 0, static_cast<std::size_t>(size),
                                       nullptr),
       "cuMemsetD8Async");
}

void SessionResume::take_up_link(std::span<const std::byte> bytes) {
  LinkState link;
  wire::Reader in(bytes);
  if (!LinkState::decode(in, link)) cannot("the image contradicts itself");
  CUcontext context = nullptr;
  if (link.context != 0 && !session_.handles.find(wire::Kind::context, link.context, context)) {
    cannot("the image contradicts itself");
  }
  need(session_.select(context), "cuCtxSetCurrent");
  if (!conversation_.go_on_from(link)) cannot("the image contradicts itself");
  conversation_.belongs_to(image_.client);  // also where the conversation has ended
}

}  // namespace gpupool::worker
