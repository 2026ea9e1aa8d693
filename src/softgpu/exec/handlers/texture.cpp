// tex, suld and sust: reads and writes through handles that the driver gave out.
#include "softgpu/exec/handlers/address.h"
#include "softgpu/exec/program/texture_operand.h"
#include "softgpu/exec/run/texture_view.h"

namespace softgpu::SOFTGPU_ISA {
namespace {

// `use(lane, view)` for every active lane; lanes mostly name the same texture.
template <class F>
void each_view(Warp& warp, const Instruction& in, bool surface, F use) {
  const uint64_t* const handles = reg<uint64_t>(warp, in.op[0]);
  const TextureView* view = nullptr;
  uint64_t known = 0;
  each_active(warp, [&](uint32_t i) {
    if (view == nullptr || handles[i] != known) {
      known = handles[i];
      view = find_texture(warp, known, surface);
      if (view == nullptr) {
        raise_fault(warp, in, Fault::illegal_address, surface ? "no such surface" : "no such texture", known,
                    i);
      }
    }
    use(i, *view);
  });
}

// list: four results, then the layer, then the coordinates.
void read_texture(Warp& warp, const Instruction& in) {
  const uint32_t dimensions = texture_operand::dimensions(in.aux);
  const bool layered = (in.aux & texture_operand::layered) != 0;
  const bool whole = (in.aux & texture_operand::whole) != 0;
  const uint32_t* const coordinates = in.list + 4 + (layered ? 1 : 0);
  each_view(warp, in, false, [&](uint32_t i, const TextureView& view) {
    const int64_t layer = layered ? reg<int32_t>(warp, in.list[4])[i] : 0;
    uint32_t result[4];
    if (whole) {
      int32_t at[3] = {};
      for (uint32_t n = 0; n < dimensions; ++n) at[n] = reg<int32_t>(warp, coordinates[n])[i];
      fetch(view, dimensions, layered, at, layer, result);
    } else {
      float at[3] = {};
      for (uint32_t n = 0; n < dimensions; ++n) at[n] = reg<float>(warp, coordinates[n])[i];
      sample(view, dimensions, layered, at, layer, result);
    }
    for (uint32_t n = 0; n < 4; ++n) reg<uint32_t>(warp, in.list[n])[i] = result[n];
  });
}

// The address that a lane's coordinates mean, x counted in bytes; 0: outside, where nothing is read or
// written.
uint64_t surface_address(Warp& warp, const Instruction& in, const TextureView& view,
                         const uint32_t* coordinates, uint32_t bytes, uint32_t lane) {
  const uint32_t dimensions = texture_operand::dimensions(in.aux);
  const uint32_t mode = in.aux & texture_operand::mode_mask;
  const bool layered = (in.aux & texture_operand::layered) != 0;
  const int64_t row_bytes = int64_t{view.width} * view.element_bytes();
  const int64_t most[3] = {row_bytes - bytes, int64_t{view.height} - 1, int64_t{view.depth} - 1};
  int64_t at[3] = {};
  const auto take = [&](uint32_t axis, uint32_t register_offset) {
    int64_t value = reg<int32_t>(warp, register_offset)[lane];
    if (value < 0 || value > most[axis]) {
      if (mode == texture_operand::trap) {
        raise_fault(warp, in, Fault::illegal_address, "outside of the surface", static_cast<uint64_t>(value),
                    lane);
      }
      if (mode == texture_operand::zero) return false;
      value = value < 0 ? 0 : most[axis];
    }
    at[axis] = value;
    return true;
  };
  if (most[0] < 0) return 0;
  if (layered && !take(2, *coordinates++)) return 0;
  for (uint32_t n = 0; n < dimensions; ++n) {
    if (!take(n, coordinates[n])) return 0;
  }
  if (at[0] % bytes != 0) raise_fault(warp, in, Fault::misaligned_address, "misaligned coordinate", 0, lane);
  return view.address + static_cast<uint64_t>(at[2]) * view.slice +
         static_cast<uint64_t>(at[1]) * view.pitch + static_cast<uint64_t>(at[0]);
}

template <class T>
void read_surface(Warp& warp, const Instruction& in) {
  using Lane = std::conditional_t<sizeof(T) == 1, uint16_t, T>;
  const uint32_t count = texture_operand::elements(in.aux);
  each_view(warp, in, true, [&](uint32_t i, const TextureView& view) {
    const uint64_t from = surface_address(warp, in, view, in.list + count, count * sizeof(T), i);
    for (uint32_t n = 0; n < count; ++n) {
      T value = 0;
      if (from != 0) std::memcpy(&value, reinterpret_cast<const void*>(from + n * sizeof(T)), sizeof(T));
      reg<Lane>(warp, in.list[n])[i] = value;
    }
  });
}

template <class T>
void write_surface(Warp& warp, const Instruction& in) {
  using Lane = std::conditional_t<sizeof(T) == 1, uint16_t, T>;
  const uint32_t count = texture_operand::elements(in.aux);
  each_view(warp, in, true, [&](uint32_t i, const TextureView& view) {
    const uint64_t to = surface_address(warp, in, view, in.list + count, count * sizeof(T), i);
    if (to == 0) return;
    for (uint32_t n = 0; n < count; ++n) {
      const T value = static_cast<T>(reg<Lane>(warp, in.list[n])[i]);
      std::memcpy(reinterpret_cast<void*>(to + n * sizeof(T)), &value, sizeof(T));
    }
  });
}

}  // namespace

void register_texture(OpcodeTable& table) {
  table.add("@tex", "=x", read_texture);
  table.add("@suld.b8", "=x", read_surface<uint8_t>);
  table.add("@suld.b16", "=x", read_surface<uint16_t>);
  table.add("@suld.b32", "=x", read_surface<uint32_t>);
  table.add("@suld.b64", "=x", read_surface<uint64_t>);
  table.add("@sust.b8", "=x", write_surface<uint8_t>);
  table.add("@sust.b16", "=x", write_surface<uint16_t>);
  table.add("@sust.b32", "=x", write_surface<uint32_t>);
  table.add("@sust.b64", "=x", write_surface<uint64_t>);
}

}  // namespace softgpu::SOFTGPU_ISA
