#include "worker/moving/session_writer.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "generated/message_ids.h"
#include "image/variables.h"
#include "worker/conversation/conversation.h"
#include "worker/conversation/link_state.h"

namespace gpupool::worker {

SessionWriter::SessionWriter(Conversation& conversation)
    : conversation_(conversation), session_(conversation.session()), equipment_(conversation.equipment()) {
  image_.fingerprint = table_fingerprint;
  image_.session = equipment_.state.session_id;
  image_.epoch = equipment_.state.gate.view(boottime_ns()).epoch;
  image_.client = conversation_.client();
  const UsageSnapshot used = equipment_.state.usage.snapshot();
  image_.usage = {used.device_ns, used.kernels,  used.posts,    used.asks,
                  used.ask_ns,    used.bytes_in, used.bytes_out};
  if (session_.is_open()) {
    collect_devices();
    collect_memory();
  }
  collect_calls();
  collect_variables();
  collect_link();
  // The vectors of the image do not change any more: their elements can be pointed at.
  std::size_t n = 0;
  for (auto& memory : image_.memory) sources_[n++].into = &memory.bytes;
  for (auto& call : image_.calls) {
    if (call.content) sources_[n++].into = &*call.content;
  }
  for (auto& variable : image_.variables) sources_[n++].into = &variable.bytes;
  sources_[n].into = &image_.link;
}

SessionWriter::~SessionWriter() {
  windows_.clear();
  session_.select(session_.current());
}

void SessionWriter::collect_devices() {
  for (std::size_t n = 0; n < equipment_.devices.size(); ++n) {
    const DeviceArena& arena = *equipment_.arenas[n];
    SessionImage::Device device;
    device.name = equipment_.profile.devices[n].name;
    equipment_.api.cuDeviceGetAttribute_(&device.major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                         equipment_.devices[n]);
    equipment_.api.cuDeviceGetAttribute_(&device.minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                                         equipment_.devices[n]);
    device.arena = arena.base();
    device.granularity = arena.granularity();
    image_.devices.push_back(std::move(device));
  }
}

void SessionWriter::collect_memory() {
  std::map<const PhysicalMemory*, std::uint32_t> numbers;
  std::vector<std::shared_ptr<PhysicalMemory>> all;
  const auto number_of = [&](const std::shared_ptr<PhysicalMemory>& memory) {
    const auto [found, fresh] = numbers.try_emplace(memory.get(), static_cast<std::uint32_t>(all.size()));
    if (fresh) {
      all.push_back(memory);
      SessionImage::Memory one;
      one.device = equipment_.ordinal(memory->location().id);
      one.size = memory->size();
      one.compression = memory->compression;
      one.rdma = memory->rdma;
      image_.memory.push_back(std::move(one));
    }
    return found->second;
  };
  for (const auto& [handle, memory] : session_.physical) image_.memory[number_of(memory)].handle = handle;
  std::map<std::uint32_t, DeviceRange> whole;  // memory that a mapping shows from its beginning to its end
  for (std::size_t n = 0; n < equipment_.arenas.size(); ++n) {
    const DeviceArena& arena = *equipment_.arenas[n];
    arena.each([&](std::uint64_t address, std::uint64_t size, std::uint64_t offset,
                   const std::shared_ptr<PhysicalMemory>& memory, CUmemAccess_flags access) {
      const std::uint32_t number = number_of(memory);
      image_.mappings.push_back(
          {static_cast<std::int32_t>(n), address, size, offset, number, static_cast<std::uint32_t>(access)});
      if (offset == 0 && size == memory->size() && access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
        whole[number] = {nullptr, address, size, arena.reachable_by_host(address, size)};
      }
    });
  }
  for (std::uint32_t n = 0; n < all.size(); ++n) {
    DeviceRange range = whole[n];
    if (range.size == 0) {
      windows_.emplace_back(equipment_.api, all[n]);
      range = {nullptr, windows_.back().address(), all[n]->size(), false};
    }
    const auto ordinal = static_cast<std::uint32_t>(image_.memory[n].device);
    const auto context = wire::Handle{wire::Kind::context, 0, ordinal}.value();
    if (!session_.handles.find(wire::Kind::context, context, range.context)) {
      throw std::runtime_error("memory of a device that is not the session's");
    }
    sources_.push_back({nullptr, range, {}});
  }
}

void SessionWriter::collect_calls() {
  for (const SessionJournal::Call& noted : session_.journal.calls(session_.handles)) {
    SessionImage::Call call{noted.message, noted.lane, noted.context, noted.body, {}, {}};
    if (const auto found = session_.images.find(noted.names.made);
        found != session_.images.end() && noted.message == static_cast<std::uint16_t>(MessageId::LoadImage)) {
      call.content = SessionImage::Bytes{};
      for (const KernelInfo& info : found->second->infos) call.kernels.push_back(info.name);
      sources_.push_back({nullptr, {}, *found->second->content});
    }
    image_.calls.push_back(std::move(call));
  }
}

void SessionWriter::collect_variables() {
  if (!session_.images.empty()) need(equipment_.api.cuCtxSetCurrent_(session_.home()), "cuCtxSetCurrent");
  for (const auto& [handle, image] : session_.images) {
    const auto content = std::span(*image->content).first(image->content->size() - 1);
    if (image::uses_device_heap(content))
      throw std::runtime_error("kernels of a loaded image allocate memory");
    if (image::holds_addresses(content))
      throw std::runtime_error("variables of a loaded image begin as addresses");
    const auto names = image::variable_names(content);
    if (!names) throw std::runtime_error("the variables of a loaded image are not known");
    for (const std::string& name : *names) {
      if (!image->is_library) {
        collect_variable(handle, 0, name);
        continue;
      }
      // Each context has its own.
      session_.handles.each(
          wire::Kind::context, [&, of = handle](std::uint64_t context, void* driver_context) {
            need(equipment_.api.cuCtxSetCurrent_(static_cast<CUcontext>(driver_context)), "cuCtxSetCurrent");
            collect_variable(of, context, name);
          });
    }
  }
}

void SessionWriter::collect_variable(std::uint64_t handle, std::uint64_t context, const std::string& name) {
  const Image& image = *session_.images.at(handle);
  DeviceRange range;
  std::size_t size = 0;
  const CUresult found =
      image.is_library
          ? equipment_.api.cuLibraryGetGlobal_(&range.address, &size, image.library, name.c_str())
          : equipment_.api.cuModuleGetGlobal_v2_(&range.address, &size, image.module, name.c_str());
  // A fat binary names the variables of all its entries, and of a linked program some are left out.
  if (found == CUDA_ERROR_NOT_FOUND || (found == CUDA_SUCCESS && size == 0)) return;
  need(found, image.is_library ? "cuLibraryGetGlobal" : "cuModuleGetGlobal");
  range.size = size;
  const std::uint64_t device = wire::Handle{wire::Kind::context, 0, 0}.value();
  if (!session_.handles.find(wire::Kind::context, context != 0 ? context : device, range.context)) {
    throw std::runtime_error("a variable of a context that is gone");
  }
  image_.variables.push_back({handle, context, name, {}});
  sources_.push_back({nullptr, range, {}});
}

void SessionWriter::collect_link() {
  const std::optional<LinkState> link = conversation_.link_state();
  if (!link) throw std::runtime_error("a call of the client is under way");
  wire::Writer out(link_);
  link->encode(out);
  sources_.push_back({nullptr, {}, link_.bytes()});
}

void SessionWriter::read(const Source& source, std::uint64_t offset, std::uint64_t size,
                         const std::function<void(std::span<const std::byte>)>& use) {
  if (source.device.size != 0) return read_device(session_, source.device, offset, size, use);
  for (std::uint64_t at = 0; at < size; at += SessionImage::chunk_bytes) {
    use(source.here.subspan(offset + at, std::min<std::uint64_t>(SessionImage::chunk_bytes, size - at)));
  }
}

void SessionWriter::read_all(const std::function<void(std::span<const std::byte>)>& fresh,
                             const std::function<bool()>& cancelled) {
  ChunkTable table;
  for (std::size_t n = 0; n < sources_.size(); ++n) {
    const Source& source = sources_[n];
    source.into->size = source.size();
    std::uint64_t at = 0;
    read(source, 0, source.size(), [&](std::span<const std::byte> piece) {
      if (cancelled()) throw std::runtime_error("nobody waits for it any more");
      bool is_fresh = false;
      source.into->chunks.push_back(table.add(piece, is_fresh));
      if (is_fresh) {
        met_.emplace_back(n, at);
        fresh(piece);
      }
      at += piece.size();
    });
  }
  image_.chunks = table.chunks();
}

void SessionWriter::read_again(std::uint32_t number,
                               const std::function<void(std::span<const std::byte>)>& use) {
  const auto& [source, offset] = met_.at(number);
  read(sources_[source], offset, image_.chunks[number].size, use);
}

}  // namespace gpupool::worker
