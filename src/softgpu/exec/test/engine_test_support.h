// Runs PTX on host arrays for tests.
#pragma once

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "softgpu/exec/program/engine.h"

namespace softgpu::testing {

inline const std::string ptx_header = ".version 9.0\n.target sm_120a\n.address_size 64\n";

inline CompileResult compile_one(const std::string& text, const Checks& checks = {}) {
  const std::string_view view = text;
  return compile(std::span(&view, 1), checks);
}

// A parameter buffer with CUDA's layout.
class Parameters {
 public:
  template <class T>
  Parameters& add(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.resize((bytes_.size() + sizeof(T) - 1) / sizeof(T) * sizeof(T));
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof(T));
    std::memcpy(bytes_.data() + at, &value, sizeof(T));
    return *this;
  }
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// A device of one megabyte, two threads, and the program under test.
class Machine {
 public:
  static constexpr size_t arena_bytes = 1 << 20;

  explicit Machine(const std::string& ptx, unsigned threads = 2, const Checks& checks = {})
      : executor(threads) {
    arena = static_cast<std::byte*>(std::aligned_alloc(4096, arena_bytes));
    std::memset(arena, 0, arena_bytes);
    compiled = compile_one(ptx, checks);
    if (!compiled.program) return;
    image = Image::create(compiled.program,
                          {[](size_t size, size_t alignment) {
                             const size_t a = alignment < 64 ? 64 : alignment;
                             return reinterpret_cast<uint64_t>(std::aligned_alloc(a, (size + a - 1) / a * a));
                           },
                           [](uint64_t p, size_t) { std::free(reinterpret_cast<void*>(p)); }});
    services.print = [this](std::string_view text) {
      const std::lock_guard lock(print_mutex);
      printed += text;
    };
    services.heap_allocate = [](size_t size) { return reinterpret_cast<uint64_t>(std::malloc(size)); };
    services.heap_free = [](uint64_t p) {
      std::free(reinterpret_cast<void*>(p));
      return true;
    };
  }
  ~Machine() { std::free(arena); }

  template <class T>
  T* at(size_t offset) {
    return reinterpret_cast<T*>(arena + offset);
  }
  uint64_t address(size_t offset) const { return reinterpret_cast<uint64_t>(arena + offset); }

  LaunchResult run(Dim3 grid, Dim3 block, const Parameters& parameters, size_t kernel = 0,
                   uint32_t dynamic_shared_bytes = 0, bool cooperative = false) {
    Launch launch;
    launch.image = image.get();
    launch.kernel = kernel;
    launch.grid = grid;
    launch.block = block;
    launch.parameters = parameters.bytes();
    launch.dynamic_shared_bytes = dynamic_shared_bytes;
    launch.cooperative = cooperative;
    MemoryMap memory;
    memory.primary_begin = address(0);
    memory.primary_end = address(arena_bytes);
    memory.contains = extra_memory;
    memory.describe = describe_memory;
    launch.time_limit = time_limit;
    return executor.run(launch, memory, services);
  }

  Executor executor;
  std::byte* arena;
  CompileResult compiled;
  std::unique_ptr<Image> image;
  DeviceServices services;
  std::function<bool(uint64_t, size_t)> extra_memory;
  std::function<std::string(uint64_t, size_t)> describe_memory;
  std::chrono::milliseconds time_limit{0};
  std::mutex print_mutex;
  std::string printed;
};

// PTX's name and register letter for a C++ type.
template <class T>
constexpr const char* bits_type() {
  return sizeof(T) == 2 ? "b16" : sizeof(T) == 4 ? "b32" : "b64";
}

// Runs `body` for each element: %a, %b, %c hold a[i], b[i], c[i]; %d is stored; %p, %q are predicates and
// %t0..9 32-bit, %x0..9 64-bit, %h0..9 16-bit registers to use.
template <class D, class A, class B = A, class C = A>
std::vector<D> evaluate(const std::string& body, const std::vector<A>& a, const std::vector<B>& b = {},
                        const std::vector<C>& c = {}, std::string* error = nullptr) {
  std::string text =
      ptx_header +
      ".visible .entry k(.param .u64 pd, .param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u32 n)\n{\n";
  text +=
      ".reg .pred %p, %q, %in; .reg .b32 %t<10>; .reg .b64 %x<10>, %ad<4>, %i; .reg .b16 %h<10>; .reg .b32 "
      "%idx, %n;\n";
  text += std::string(".reg .") + bits_type<D>() + " %d; .reg ." + bits_type<A>() + " %a; .reg ." +
          bits_type<B>() + " %b; .reg ." + bits_type<C>() + " %c;\n";
  text +=
      "mov.u32 %idx, %tid.x; mad.lo.s32 %idx, %ctaid.x, %ntid.x, %idx; ld.param.u32 %n, [n];\n"
      "setp.ge.u32 %in, %idx, %n; @%in exit; cvt.u64.u32 %i, %idx;\n";
  auto load = [&](const char* name, size_t bytes, const char* type, int k) {
    text += "ld.param.u64 %ad" + std::to_string(k) + ", [p" + name + "]; mad.lo.s64 %ad" + std::to_string(k) +
            ", %i, " + std::to_string(bytes) + ", %ad" + std::to_string(k) + ";\n";
    if (*name != 'd')
      text += std::string("ld.global.") + type + " %" + name + ", [%ad" + std::to_string(k) + "];\n";
  };
  load("d", sizeof(D), "", 0);
  load("a", sizeof(A), bits_type<A>(), 1);
  if (!b.empty()) load("b", sizeof(B), bits_type<B>(), 2);
  if (!c.empty()) load("c", sizeof(C), bits_type<C>(), 3);
  text += body + "\nst.global." + bits_type<D>() + " [%ad0], %d;\nret;\n}\n";
  Machine machine(text);
  if (error) *error = machine.compiled.log;
  if (!machine.image) return {};
  const size_t n = a.size();
  std::memcpy(machine.at<A>(0x10000), a.data(), n * sizeof(A));
  if (!b.empty()) std::memcpy(machine.at<B>(0x20000), b.data(), n * sizeof(B));
  if (!c.empty()) std::memcpy(machine.at<C>(0x30000), c.data(), n * sizeof(C));
  Parameters parameters;
  for (size_t offset : {0x40000, 0x10000, 0x20000, 0x30000}) parameters.add(machine.address(offset));
  parameters.add(static_cast<uint32_t>(n));
  const LaunchResult result =
      machine.run({static_cast<uint32_t>((n + 63) / 64), 1, 1}, {64, 1, 1}, parameters);
  if (error && result.fault != Fault::none) *error = result.detail;
  if (result.fault != Fault::none) return {};
  std::vector<D> d(n);
  std::memcpy(d.data(), machine.at<D>(0x40000), n * sizeof(D));
  return d;
}

}  // namespace softgpu::testing
