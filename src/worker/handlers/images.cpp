// Handlers of the messages about modules, libraries, kernels and the linker.
#include <algorithm>
#include <cstring>
#include <string>

#include "generated/handlers.h"
#include "image/footprint.h"
#include "image/variables.h"
#include "worker/conversation/call.h"
#include "worker/image/session_journal.h"
#include "worker/moving/image_content.h"
#include "worker/objects/image_check.h"

namespace gpupool::worker {
namespace {

constexpr std::size_t searched_bytes = 4 << 20;  // larger images when the session moves
constexpr std::size_t described_at_once = 64;    // describing makes a lazy driver load the kernel

wire::Kind kind_of(std::uint64_t handle) {
  return wire::Handle::from(handle).kind;
}

Image* find_image(Call& x, std::uint64_t handle) {
  const auto found = x.session.images.find(handle);
  return found == x.session.images.end() ? nullptr : found->second.get();
}

CUdevice any_device(Call& x) {
  CUdevice device = 0;
  static_cast<void>(x.device(0, device));
  return device;
}

/// Without the NUL that is behind it for the driver.
std::span<const std::byte> content_of(std::span<const std::byte> bytes) {
  return bytes.first(bytes.size() - 1);
}

/// Counts what the image will take. A library goes with the device that is current, or the first.
CUresult charge(Call& x, std::span<const std::byte> content, Image& image) {
  MemoryAccount* account = x.session.account_of_current();
  if (account == nullptr) account = &x.equipment.state.memory.front();
  const image::Footprint footprint = image::footprint(content, x.equipment.capability());
  if (!image.charge.reserve(*account, footprint.bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  image.managed_memory = footprint.managed_memory && !x.equipment.is_software();
  return CUDA_SUCCESS;
}

/// What kernels have allocated cannot be read from here. Addresses that an image begins with, such as tables
/// of functions, are others in another process, and kernels may have copied them anywhere.
bool stays_here(std::span<const std::byte> content) {
  return image::uses_device_heap(content) || image::holds_addresses(content);
}

/// However the image came here, another worker is to load it from its bytes.
void note_loading(Call& x, std::uint64_t image, std::span<const std::byte> options) {
  messages::LoadImage load;
  load.image = image;
  load.options = options;
  wire::Buffer body;
  wire::Writer out(body);
  load.encode(out);
  SessionJournal::Call call;
  call.message = static_cast<std::uint16_t>(MessageId::LoadImage);
  const std::uint64_t context = x.handles.name_of(wire::Kind::context, x.current());
  call.context = context;
  call.names.handles[0] = call.names.made = image;
  call.body.assign(body.bytes().begin(), body.bytes().end());
  x.session.journal.note(std::move(call), x.handles);
  const auto& content = *x.session.images.at(image)->content;
  if (content.size() > searched_bytes || !stays_here(content)) return;
  SessionJournal::Call obstacle;
  obstacle.message = static_cast<std::uint16_t>(MessageId::LoadImage);
  obstacle.obstacle = MoveObstacle::other;
  obstacle.context = context;
  obstacle.names.handles[0] = image;
  x.session.journal.note(std::move(obstacle), x.handles);
}

/// The options and the image as the driver gets them, whichever way the image came.
template <class Message, class Reply>
CUresult load_image(Call& x, const Message& m, Reply& reply, ImageContent& content) {
  static thread_local wire::Buffer kernels, logs;  // the reply refers to them until it is encoded
  kernels.clear();
  logs.clear();
  const wire::Kind kind = kind_of(m.image);
  if ((kind != wire::Kind::module && kind != wire::Kind::library) || !x.handles.vacant(kind, m.image)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  JitOptions options;
  if (!options.decode(m.options)) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = content.take(x, image_stays_inside); bad != CUDA_SUCCESS) return bad;
  const std::span<const std::byte> bytes = content.bytes();
  x.waits();

  auto image = std::make_unique<Image>();
  image->is_library = kind == wire::Kind::library;
  if (const CUresult bad = charge(x, content_of(bytes), *image); bad != CUDA_SUCCESS) return bad;
  CUresult result;
  if (image->is_library) {
    result = x.api.cuLibraryLoadData_(&image->library, bytes.data(), options.options(), options.values(),
                                      options.count(), nullptr, nullptr, 0);
  } else {
    result = x.api.cuModuleLoadDataEx_(&image->module, bytes.data(), options.count(), options.options(),
                                       options.values());
  }
  options.encode_logs(logs);
  reply.logs = logs.bytes();
  if (result != CUDA_SUCCESS) {
    if (result == CUDA_ERROR_OUT_OF_MEMORY) image->charge.refused();
    x.keep_fields_on_error();  // the log says why
    return result;
  }
  result = enumerate_kernels(x.api, *image);
  const std::size_t count = image->infos.size();
  for (std::size_t n = 0; result == CUDA_SUCCESS && n < std::min(count, described_at_once); ++n) {
    if (count <= described_at_once) result = describe_kernel(x.api, *image, n, any_device(x));
  }
  if (result != CUDA_SUCCESS) {
    if (image->is_library) {
      x.api.cuLibraryUnload_(image->library);
    } else {
      x.api.cuModuleUnload_(image->module);
    }
    return result;
  }
  wire::Writer out(kernels);
  out.put(static_cast<std::uint32_t>(count));
  for (const KernelInfo& info : image->infos) info.encode(out);
  reply.kernels = kernels.bytes();
  if (image->is_library) {
    x.handles.bind(kind, m.image, image->library);
  } else {
    x.handles.bind(kind, m.image, image->module);
  }
  if (image->managed_memory) x.equipment.parking.obstacles.managed_loaded();
  content.keep(x.equipment.image_cache);
  image->content = std::make_shared<const std::vector<std::byte>>(content.give_away());
  x.session.images[m.image] = std::move(image);
  note_loading(x, m.image, m.options);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult run_LoadImage(Call& x, const messages::LoadImage& m, replies::LoadImage& reply) {
  SentContent content;
  return load_image(x, m, reply, content);
}

CUresult run_LoadCachedImage(Call& x, const messages::LoadCachedImage& m, replies::LoadCachedImage& reply) {
  CachedContent content;
  if (const CUresult bad = content.find(x.equipment.image_cache, m.digest, m.size, reply.answer);
      bad != CUDA_SUCCESS)
    return bad;
  return reply.answer == 0 ? load_image(x, m, reply, content) : CUDA_SUCCESS;
}

CUresult load_moved_image(Call& x, std::span<const std::byte> body, std::vector<std::byte> bytes,
                          const std::vector<std::string>& kernels) {
  messages::LoadImage m;
  replies::LoadImage reply;
  wire::Reader in(body);
  if (!messages::LoadImage::decode(in, m)) return CUDA_ERROR_INVALID_VALUE;
  MovedContent content(std::move(bytes));
  if (const CUresult bad = load_image(x, m, reply, content); bad != CUDA_SUCCESS) return bad;
  Image& image = *x.session.images.at(m.image);
  return order_kernels(image, kernels) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

CUresult run_DescribeKernel(Call& x, const messages::DescribeKernel& m, replies::DescribeKernel& reply) {
  static thread_local wire::Buffer kernel;
  kernel.clear();
  Image* const image = find_image(x, m.image);
  if (image == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (m.ordinal >= image->infos.size()) return CUDA_ERROR_NOT_FOUND;
  const CUresult result = describe_kernel(x.api, *image, m.ordinal, any_device(x));
  if (result != CUDA_SUCCESS) return result;
  wire::Writer out(kernel);
  image->infos[m.ordinal].encode(out);
  reply.kernel = kernel.bytes();
  return CUDA_SUCCESS;
}

CUresult run_BindFunction(Call& x, const messages::BindFunction& m, replies::BindFunction&) {
  Image* const image = find_image(x, m.image);
  const wire::Kind kind = kind_of(m.function);
  if (image == nullptr || kind != (image->is_library ? wire::Kind::kernel : wire::Kind::function) ||
      !x.handles.vacant(kind, m.function)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (m.ordinal >= image->infos.size()) return CUDA_ERROR_NOT_FOUND;
  const CUresult result = describe_kernel(x.api, *image, m.ordinal, any_device(x));
  if (result != CUDA_SUCCESS) return result;
  void* const info = &image->infos[m.ordinal];
  if (image->is_library) {
    x.handles.bind(kind, m.function, image->kernels[m.ordinal], info);
  } else {
    x.handles.bind(kind, m.function, image->functions[m.ordinal], info);
  }
  image->bound.push_back(m.function);
  return CUDA_SUCCESS;
}

CUresult run_BindFunctionOfKernel(Call& x, const messages::BindFunctionOfKernel& m,
                                  replies::BindFunctionOfKernel&) {
  CUkernel kernel = nullptr;
  if (!x.handles.find(wire::Kind::kernel, m.kernel, kernel) ||
      !x.handles.vacant(wire::Kind::function, m.function)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  CUfunction function = nullptr;
  const CUresult result = x.api.cuKernelGetFunction_(&function, kernel);
  if (result != CUDA_SUCCESS) return result;
  x.handles.bind(wire::Kind::function, m.function, function, x.handles.note(m.kernel));
  for (const auto& [value, image] : x.session.images) {
    if (std::find(image->bound.begin(), image->bound.end(), m.kernel) != image->bound.end()) {
      image->bound.push_back(m.function);
      break;
    }
  }
  return CUDA_SUCCESS;
}

CUresult run_BindModuleOfLibrary(Call& x, const messages::BindModuleOfLibrary& m,
                                 replies::BindModuleOfLibrary&) {
  Image* const image = find_image(x, m.library);
  if (image == nullptr || !image->is_library || !x.handles.vacant(wire::Kind::module, m.module)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  CUmodule module = nullptr;
  const CUresult result = x.api.cuLibraryGetModule_(&module, image->library);
  if (result != CUDA_SUCCESS) return result;
  x.handles.bind(wire::Kind::module, m.module, module);
  image->bound.push_back(m.module);
  return CUDA_SUCCESS;
}

CUresult run_UnloadImage(Call& x, const messages::UnloadImage& m, replies::UnloadImage&) {
  const auto found = x.session.images.find(m.image);
  if (found == x.session.images.end()) return CUDA_ERROR_INVALID_HANDLE;
  const std::unique_ptr<Image> image = std::move(found->second);
  x.session.images.erase(found);
  if (image->managed_memory) x.equipment.parking.obstacles.managed_unloaded();
  for (const std::uint64_t handle : image->bound) x.handles.drop(kind_of(handle), handle);
  x.handles.drop(kind_of(m.image), m.image);
  x.waits();
  return image->is_library ? x.api.cuLibraryUnload_(image->library) : x.api.cuModuleUnload_(image->module);
}

CUresult run_FindGlobal(Call& x, const messages::FindGlobal& m, replies::FindGlobal& reply) {
  const std::string name(reinterpret_cast<const char*>(m.name.data()), m.name.size());
  CUdeviceptr address = 0;
  std::size_t size = 0;
  CUresult result;
  if (kind_of(m.image) == wire::Kind::library) {
    CUlibrary library = nullptr;
    if (!x.handles.find(wire::Kind::library, m.image, library)) return CUDA_ERROR_INVALID_HANDLE;
    result = x.api.cuLibraryGetGlobal_(&address, &size, library, name.c_str());
  } else {
    CUmodule module = nullptr;
    if (!x.handles.find(wire::Kind::module, m.image, module)) return CUDA_ERROR_INVALID_HANDLE;
    result = x.api.cuModuleGetGlobal_v2_(&address, &size, module, name.c_str());
  }
  reply.address = address;
  reply.size = size;
  return result;
}

CUresult run_SetFunctionAttribute(Call& x, const messages::SetFunctionAttribute& m,
                                  replies::SetFunctionAttribute&) {
  const auto attribute = static_cast<CUfunction_attribute>(m.attribute);
  if (kind_of(m.function) == wire::Kind::kernel) {
    CUkernel kernel = nullptr;
    if (!x.handles.find(wire::Kind::kernel, m.function, kernel)) return CUDA_ERROR_INVALID_HANDLE;
    // The client says by the context which device it means.
    return x.api.cuKernelSetAttribute_(attribute, m.value, kernel, x.session.device_of_current());
  }
  CUfunction function = nullptr;
  if (!x.handles.find(wire::Kind::function, m.function, function)) return CUDA_ERROR_INVALID_HANDLE;
  return x.api.cuFuncSetAttribute_(function, attribute, m.value);
}

CUresult run_LinkCreate(Call& x, const messages::LinkCreate& m, replies::LinkCreate&) {
  if (!x.handles.vacant(wire::Kind::link, m.link)) return CUDA_ERROR_INVALID_HANDLE;
  auto link = std::make_unique<Link>();
  if (!link->options.decode(m.options)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = x.api.cuLinkCreate_v2_(link->options.count(), link->options.options(),
                                                 link->options.values(), &link->state);
  if (result != CUDA_SUCCESS) return result;
  x.handles.bind(wire::Kind::link, m.link, link->state);
  x.session.links[m.link] = std::move(link);
  return CUDA_SUCCESS;
}

namespace {

template <class Message, class Reply>
CUresult link_add(Call& x, const Message& m, Reply& reply, ImageContent& content) {
  static thread_local wire::Buffer logs;
  logs.clear();
  const auto found = x.session.links.find(m.link);
  if (found == x.session.links.end()) return CUDA_ERROR_INVALID_HANDLE;
  JitOptions options(false);
  if (!options.decode(m.options)) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = content.take(x, link_input_stays_inside); bad != CUDA_SUCCESS) return bad;
  const std::span<std::byte> bytes = content.bytes();
  const std::string name(reinterpret_cast<const char*>(m.name.data()), m.name.size());
  const auto type = static_cast<CUjitInputType>(m.type);
  // PTX is text: its size counts the NUL that ends it.
  const std::size_t size =
      type == CU_JIT_INPUT_PTX && bytes[bytes.size() - 2] != std::byte{0} ? bytes.size() : bytes.size() - 1;
  const CUresult result =
      x.api.cuLinkAddData_v2_(found->second->state, type, bytes.data(), size, name.c_str(), options.count(),
                              options.options(), options.values());
  found->second->options.encode_logs(logs);
  reply.logs = logs.bytes();
  if (result == CUDA_SUCCESS) {
    content.keep(x.equipment.image_cache);
  } else {
    x.keep_fields_on_error();
  }
  return result;
}

}  // namespace

CUresult run_LinkAdd(Call& x, const messages::LinkAdd& m, replies::LinkAdd& reply) {
  SentContent content;
  return link_add(x, m, reply, content);
}

CUresult run_LinkAddCached(Call& x, const messages::LinkAddCached& m, replies::LinkAddCached& reply) {
  CachedContent content;
  if (const CUresult bad = content.find(x.equipment.image_cache, m.digest, m.size, reply.answer);
      bad != CUDA_SUCCESS)
    return bad;
  return reply.answer == 0 ? link_add(x, m, reply, content) : CUDA_SUCCESS;
}

CUresult run_LinkComplete(Call& x, const messages::LinkComplete& m, replies::LinkComplete& reply) {
  static thread_local wire::Buffer logs;
  logs.clear();
  const auto found = x.session.links.find(m.link);
  if (found == x.session.links.end()) return CUDA_ERROR_INVALID_HANDLE;
  void* cubin = nullptr;
  std::size_t size = 0;
  const CUresult result = x.api.cuLinkComplete_(found->second->state, &cubin, &size);
  found->second->options.encode_logs(logs);
  reply.logs = logs.bytes();
  if (result != CUDA_SUCCESS) {
    x.keep_fields_on_error();
    return result;
  }
  x.reply_payload({size, static_cast<const std::byte*>(cubin), {}});
  return CUDA_SUCCESS;
}

CUresult run_LinkDestroy(Call& x, const messages::LinkDestroy& m, replies::LinkDestroy&) {
  const auto found = x.session.links.find(m.link);
  if (found == x.session.links.end()) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult result = x.api.cuLinkDestroy_(found->second->state);
  x.handles.drop(wire::Kind::link, m.link);
  x.session.links.erase(found);
  return result;
}

}  // namespace gpupool::worker
