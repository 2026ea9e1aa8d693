// The software GPU's engine: PTX text in, kernels executed on the CPU out.
//
//   compile()      PTX sources -> immutable Program (parsed, linked, every opcode resolved)
//   Image::create  Program     -> its global variables placed in device memory
//   Executor::run  Image, grid -> all blocks executed; blocking
//
// Addresses: a generic or global address IS a host address. Every access of a kernel is checked
// against the ranges that the caller's MemoryMap names, plus this block's shared memory, this
// thread's local memory, the kernel's parameters and the image's variables.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "softgpu/exec/program/checks.h"
#include "softgpu/ptx/error.h"
#include "softgpu/ptx/types.h"

namespace softgpu {

struct ParameterInfo {
  size_t offset, size;  // bytes, in the packed parameter buffer (CUDA's kernel parameter layout)
};

struct KernelInfo {
  std::string name;
  std::vector<ParameterInfo> parameters;
  size_t parameter_bytes = 0;
  size_t static_shared_bytes = 0;
  size_t local_bytes = 0;                 // per thread, this kernel with all functions it calls
  uint32_t max_threads_per_block = 1024;  // 1024, or less where .maxntid / .reqntid says so
  uint32_t registers = 0;                 // 32-bit registers per thread, an estimate after allocation
  bool uses_dynamic_shared = false;       // mentions an `.extern .shared` array or %dynamic_smem_size
  bool uses_grid_sync = false;            // may only run as a cooperative launch
  Dim3 required_block{0, 0, 0};           // .reqntid, {0,0,0} if none
};

struct GlobalInfo {
  std::string name;
  size_t size, alignment;
  bool is_constant;
};

struct ProgramParts;  // engine-internal

// Parsed and decoded PTX. Immutable, may be shared between threads and images.
class Program {
 public:
  explicit Program(std::unique_ptr<const ProgramParts> parts);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  [[nodiscard]] std::span<const KernelInfo> kernels() const;
  [[nodiscard]] std::span<const GlobalInfo> globals() const;  // those visible by name
  [[nodiscard]] std::optional<size_t> find_kernel(std::string_view name) const;
  [[nodiscard]] const ProgramParts& parts() const { return *parts_; }

 private:
  std::unique_ptr<const ProgramParts> parts_;
};

struct CompileResult {
  std::shared_ptr<const Program> program;  // null unless status is ok
  CompileStatus status = CompileStatus::ok;
  std::string log;      // human readable; "source 1, line 12: ..." for errors
  int ptx_version = 0;  // major * 10 + minor of the newest source, e.g. 94
  int target = 0;       // e.g. 120 for sm_120a, the highest of all sources
};

// Links several PTX sources: `.extern` functions and variables are resolved across them. vprintf,
// malloc, free, __assertfail, cudaCGGetIntrinsicHandle and cudaCGSynchronize are built in.
// A source may end in NUL bytes. Never throws for bad input; never crashes on it.
// A program with checks is slower (docs/explanation/software-gpu.md). Without `fuses_products`, sums of
// products round twice where PTX leaves it open (ptx/fuse_products.h).
[[nodiscard]] CompileResult compile(std::span<const std::string_view> ptx_sources, const Checks& checks = {},
                                    bool fuses_products = true);

// Device memory for an image's variables. allocate returns 0 when out of memory. Alignment is a
// power of two. The memory must be readable and writable by this process.
struct GlobalStorage {
  std::function<uint64_t(size_t size, size_t alignment)> allocate;
  std::function<void(uint64_t address, size_t size)> free;
};

struct GlobalAddress {
  uint64_t address;
  size_t size;
};

struct ImageParts;  // engine-internal

// A program with its variables in device memory, initialised. Freed with the image.
class Image {
 public:
  // Null when the storage is out of memory.
  static std::unique_ptr<Image> create(std::shared_ptr<const Program> program, GlobalStorage storage);
  ~Image();
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;

  [[nodiscard]] const Program& program() const;
  [[nodiscard]] const std::shared_ptr<const Program>& program_pointer() const;
  [[nodiscard]] std::optional<GlobalAddress> global(std::string_view name) const;
  [[nodiscard]] const ImageParts& parts() const { return *parts_; }

 private:
  explicit Image(std::unique_ptr<ImageParts> parts);
  std::unique_ptr<ImageParts> parts_;
};

// What a kernel may touch. `primary` is checked inline (give the device arena: addresses inside it
// that are not mapped raise SIGSEGV, which the engine turns into Fault::illegal_address).
// `contains` decides about everything outside it (managed, pinned, registered host memory); it is
// called from several threads at once and may be empty.
struct MemoryMap {
  uint64_t primary_begin = 0, primary_end = 0;
  std::function<bool(uint64_t address, size_t size)> contains;
  // For the text of a fault: what lies at or next to an address that a kernel may not use ("12 bytes behind
  // ..."). Empty text if there is nothing to say.
  std::function<std::string(uint64_t address, size_t size)> describe;
};

struct TextureView;

// A part of an operation of a math library: what the built-in function gpupool_operation does. `name` and
// `parameters` are the kernel's; in its `round`th call a block does part `block` + `round` * `blocks`.
struct OperationPart {
  std::string_view name;
  std::span<const std::byte> parameters;
  uint64_t block = 0, blocks = 1, round = 0;
};
enum class Fault : int;
struct OperationEnd {
  Fault fault{};       // Fault::none
  std::string detail;  // what is wrong, if anything is
  bool more = false;   // the block has parts left
};

// Where the device heap (in-kernel malloc/free), printf and texture handles go. Callbacks are called from
// several threads at once. Any may be empty: malloc then returns 0, printf output is dropped.
struct DeviceServices {
  std::function<void(std::string_view text)> print;
  std::function<uint64_t(size_t size)> heap_allocate;
  std::function<bool(uint64_t address)> heap_free;
  // Sets the value that a conditional node of a graph decides by; false for no such handle.
  std::function<bool(uint64_t handle, uint32_t value)> set_conditional;
  std::function<std::shared_ptr<const TextureView>(uint64_t handle, bool surface)> texture;
  // Does a part of an operation of a math library; throws nothing.
  std::function<OperationEnd(const OperationPart& part)> operation;
};

struct Launch {
  const Image* image = nullptr;
  size_t kernel = 0;  // index into program().kernels()
  Dim3 grid, block;
  uint32_t dynamic_shared_bytes = 0;
  std::span<const std::byte> parameters;      // packed; at least KernelInfo::parameter_bytes
  bool cooperative = false;                   // all blocks resident, grid synchronisation allowed
  size_t stack_bytes = 1024;                  // per-thread stack for recursive or indirect calls
  const std::atomic<bool>* cancel = nullptr;  // set to true to end the launch with Fault::timeout
  std::chrono::milliseconds time_limit{0};    // then the launch ends with Fault::timeout; 0: none
};

enum class Fault : int {
  none,
  illegal_address,
  misaligned_address,
  illegal_instruction,  // brkpt, an indirect call to no function, ...
  trap,
  assert_failed,
  launch_out_of_resources,  // block too large, not enough shared memory, wrong parameters
  timeout,
  stack_overflow,
  check_failed,  // one of Checks found something
};

struct LaunchResult {
  Fault fault = Fault::none;
  std::string detail;      // kernel, address, block, thread, PTX line
  bool timed_out = false;  // Launch::time_limit was over
  uint64_t executed_warp_instructions = 0;
};

class HelperThreads;

// Runs launches. One executor per process is enough; run() may be called from several threads at
// once, the calling thread works too.
class Executor {
 public:
  explicit Executor(unsigned threads);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  LaunchResult run(const Launch& launch, const MemoryMap& memory, const DeviceServices& services);

  [[nodiscard]] unsigned threads() const;
  // That take part in what run() executes; other threads may.
  [[nodiscard]] HelperThreads& helpers();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace softgpu
