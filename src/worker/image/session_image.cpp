#include "worker/image/session_image.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace gpupool::worker {
namespace {

using wire::Reader;
using wire::Writer;

void put(Writer& out, const SessionImage::Bytes& bytes) {
  out.put(bytes.size);
  out.put(static_cast<std::uint32_t>(bytes.chunks.size()));
  out.append(std::as_bytes(std::span(bytes.chunks)));
}

SessionImage::Bytes get_bytes(Reader& in) {
  SessionImage::Bytes bytes;
  bytes.size = in.get<std::uint64_t>();
  const auto count = in.get<std::uint32_t>();
  const auto numbers = in.take(std::size_t{count} * sizeof(std::uint32_t));
  const std::uint64_t pieces =
      bytes.size / SessionImage::chunk_bytes + (bytes.size % SessionImage::chunk_bytes != 0 ? 1 : 0);
  if (!in.ok() || pieces != count) {
    in.fail();
    return {};
  }
  bytes.chunks.resize(count);
  if (count != 0) std::memcpy(bytes.chunks.data(), numbers.data(), numbers.size());
  return bytes;
}

template <class T, class F>
void put_all(Writer& out, const std::vector<T>& all, F put_one) {
  out.put(static_cast<std::uint32_t>(all.size()));
  for (const T& one : all) put_one(one);
}

/// A count is not believed: each element takes at least a byte, and reading ends with the bytes.
template <class T, class F>
void get_all(Reader& in, std::vector<T>& all, F get_one) {
  const auto count = in.get<std::uint32_t>();
  for (std::uint32_t n = 0; n < count && in.ok(); ++n) all.push_back(get_one());
}

bool pieces_fit(const SessionImage& image) {
  bool good = true;
  image.each_bytes([&](const SessionImage::Bytes& bytes) {
    for (std::size_t n = 0; n < bytes.chunks.size(); ++n) {
      const std::uint64_t left = bytes.size - n * SessionImage::chunk_bytes;
      const std::uint32_t number = bytes.chunks[n];
      if (number == SessionImage::zeros) continue;
      good = good && number < image.chunks.size() &&
             image.chunks[number].size == std::min<std::uint64_t>(left, SessionImage::chunk_bytes);
    }
  });
  return good;
}

bool memory_fits(const SessionImage& image) {
  const auto device = [&](std::int32_t ordinal) {
    return ordinal >= 0 && static_cast<std::size_t>(ordinal) < image.devices.size();
  };
  return std::all_of(image.memory.begin(), image.memory.end(),
                     [&](const auto& one) { return device(one.device) && one.size == one.bytes.size; }) &&
         std::all_of(image.mappings.begin(), image.mappings.end(),
                     [&](const auto& one) { return device(one.place) && one.memory < image.memory.size(); });
}

}  // namespace

std::vector<std::byte> SessionImage::encode() const {
  wire::Buffer buffer;
  Writer out(buffer);
  out.put(magic);
  out.put(version);
  out.put(fingerprint);
  out.put(session);
  out.put(epoch);
  out.put(client);
  out.put(usage);
  put_all(out, devices, [&](const Device& device) {
    out.put_text(device.name);
    out.put(device.major);
    out.put(device.minor);
    out.put(device.arena);
    out.put(device.granularity);
  });
  put_all(out, memory, [&](const Memory& one) {
    out.put(one.handle);
    out.put(one.device);
    out.put(one.size);
    out.put(one.compression);
    out.put(one.rdma);
    put(out, one.bytes);
  });
  put_all(out, mappings, [&](const Mapping& mapping) {
    out.put(mapping.place);
    out.put(mapping.address);
    out.put(mapping.size);
    out.put(mapping.offset);
    out.put(mapping.memory);
    out.put(mapping.access);
  });
  put_all(out, calls, [&](const Call& call) {
    out.put(call.message);
    out.put(call.lane);
    out.put(call.context);
    out.put_bytes(call.body);
    out.put(static_cast<std::uint8_t>(call.content.has_value()));
    if (!call.content) return;
    put(out, *call.content);
    put_all(out, call.kernels, [&](const std::string& name) { out.put_text(name); });
  });
  put_all(out, variables, [&](const Variable& variable) {
    out.put(variable.image);
    out.put(variable.context);
    out.put_text(variable.name);
    put(out, variable.bytes);
  });
  put(out, link);
  put_all(out, chunks, [&](const Chunk& chunk) {
    out.put(chunk.digest);
    out.put(chunk.size);
    out.put(chunk.place);
  });
  const Digest digest = sha256(buffer.bytes());
  out.append(digest);
  return {buffer.bytes().begin(), buffer.bytes().end()};
}

std::optional<SessionImage> SessionImage::decode(std::span<const std::byte> bytes, std::string& why) {
  SessionImage image;
  if (bytes.size() < sizeof(Digest) || bytes.size() > largest_manifest) {
    why = "it is no manifest of a session";
    return std::nullopt;
  }
  const auto said = bytes.last(sizeof(Digest));
  bytes = bytes.first(bytes.size() - sizeof(Digest));
  Reader in(bytes);
  if (in.get<std::uint32_t>() != magic) {
    why = "it is no manifest of a session";
    return std::nullopt;
  }
  if (in.get<std::uint32_t>() != version) {
    why = "it was written by another version";
    return std::nullopt;
  }
  if (const Digest digest = sha256(bytes); !std::equal(said.begin(), said.end(), digest.begin())) {
    why = "its manifest is damaged";
    return std::nullopt;
  }
  image.fingerprint = in.get<std::uint32_t>();
  image.session = in.get<decltype(image.session)>();
  image.epoch = in.get<std::uint32_t>();
  image.client = in.get<std::uint64_t>();
  image.usage = in.get<decltype(image.usage)>();
  get_all(in, image.devices, [&] {
    Device device;
    device.name = in.get_text();
    device.major = in.get<std::int32_t>();
    device.minor = in.get<std::int32_t>();
    device.arena = in.get<std::uint64_t>();
    device.granularity = in.get<std::uint64_t>();
    return device;
  });
  get_all(in, image.memory, [&] {
    Memory one;
    one.handle = in.get<std::uint64_t>();
    one.device = in.get<std::int32_t>();
    one.size = in.get<std::uint64_t>();
    one.compression = in.get<std::uint8_t>();
    one.rdma = in.get<std::uint8_t>();
    one.bytes = get_bytes(in);
    return one;
  });
  get_all(in, image.mappings, [&] {
    Mapping mapping;
    mapping.place = in.get<std::int32_t>();
    mapping.address = in.get<std::uint64_t>();
    mapping.size = in.get<std::uint64_t>();
    mapping.offset = in.get<std::uint64_t>();
    mapping.memory = in.get<std::uint32_t>();
    mapping.access = in.get<std::uint32_t>();
    return mapping;
  });
  get_all(in, image.calls, [&] {
    Call call;
    call.message = in.get<std::uint16_t>();
    call.lane = in.get<std::uint32_t>();
    call.context = in.get<std::uint64_t>();
    const auto body = in.get_bytes();
    call.body.assign(body.begin(), body.end());
    const auto has_content = in.get<std::uint8_t>();
    if (has_content > 1) in.fail();
    if (has_content != 1) return call;
    call.content = get_bytes(in);
    get_all(in, call.kernels, [&] { return std::string(in.get_text()); });
    return call;
  });
  get_all(in, image.variables, [&] {
    Variable variable;
    variable.image = in.get<std::uint64_t>();
    variable.context = in.get<std::uint64_t>();
    variable.name = in.get_text();
    variable.bytes = get_bytes(in);
    return variable;
  });
  image.link = get_bytes(in);
  get_all(in, image.chunks, [&] {
    Chunk chunk;
    chunk.digest = in.get<Digest>();
    chunk.size = in.get<std::uint32_t>();
    chunk.place = in.get<std::uint64_t>();
    return chunk;
  });
  if (!in.finished() || !pieces_fit(image) || !memory_fits(image)) {
    why = "its manifest contradicts itself";
    return std::nullopt;
  }
  return image;
}

}  // namespace gpupool::worker
