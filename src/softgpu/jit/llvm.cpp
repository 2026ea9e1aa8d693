#include "softgpu/jit/llvm.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <string_view>

#include "base/mutex.h"

namespace softgpu::jit {
namespace {

// LLVM-C's enumerations, of which these values have never changed.
constexpr int code_generation_none = 0, code_generation_default = 2, position_independent = 2, small_code = 3,
              object_file = 1;

// What the passes are: registers become values, then what 32-wide straight code gains from. The vectorisers
// of the standard pipeline have nothing to do and would cost most of its time.
constexpr char usual_passes[] =
    "function(sroa,early-cse<memssa>,simplifycfg,instcombine,jump-threading,simplifycfg,"
    "loop-mssa(licm),gvn,instcombine,dse,adce,simplifycfg)";
// For tests of many kernels that run once: what makes selecting instructions, the longest part then, quicker.
constexpr char quick_passes[] = "function(sroa,early-cse)";

// A pass that takes half the time of large kernels and finds nothing to do in them: mask registers are
// written as such. LLVM has no other switch for it. A version that doesn't know it ignores it.
constexpr const char* left_out_passes[] = {"gpupool-softgpu-jit", "-disable-x86-domain-reassignment"};

bool quick_is_wanted() {
  const char* const effort = std::getenv("GPUPOOL_SOFTGPU_JIT_EFFORT");
  return effort != nullptr && std::string_view(effort) == "quick";
}

std::vector<std::string> candidates() {
  if (const char* const wish = std::getenv("GPUPOOL_SOFTGPU_LLVM"); wish != nullptr && *wish != '\0')
    return {wish};
  std::vector<std::string> names;
  for (int version = 22; version >= 18; --version)
    names.push_back("libLLVM.so." + std::to_string(version) + ".1");
  for (int version = 19; version >= 15; --version)
    names.push_back("libLLVM-" + std::to_string(version) + ".so.1");
  for (int version = 22; version >= 15; --version)
    names.push_back("/usr/lib/llvm-" + std::to_string(version) + "/lib/libLLVM.so");
  return names;
}

std::string_view wished_instructions() {
#ifdef SOFTGPU_PORTABLE
  return "baseline";
#else
  const char* const wish = std::getenv("GPUPOOL_SOFTGPU_ISA");
  return wish == nullptr ? "" : wish;
#endif
}

}  // namespace

struct Llvm::Interface {
  using Handle = void*;
  // Named as the library exports them. NOLINTBEGIN(readability-identifier-naming)
  void (*InitializeX86TargetInfo)();
  void (*InitializeX86Target)();
  void (*InitializeX86TargetMC)();
  void (*InitializeX86AsmPrinter)();
  void (*ParseCommandLineOptions)(int, const char* const*, const char*);
  Handle (*ContextCreate)();
  void (*ContextDispose)(Handle);
  Handle (*CreateMemoryBufferWithMemoryRangeCopy)(const char*, size_t, const char*);
  const char* (*GetBufferStart)(Handle);
  size_t (*GetBufferSize)(Handle);
  void (*DisposeMemoryBuffer)(Handle);
  int (*ParseIRInContext)(Handle context, Handle buffer, Handle* module, char** message);
  void (*DisposeModule)(Handle);
  void (*DisposeMessage)(char*);
  char* (*GetDefaultTargetTriple)();
  char* (*GetHostCPUName)();
  char* (*GetHostCPUFeatures)();
  int (*GetTargetFromTriple)(const char*, Handle*, char**);
  Handle (*CreateTargetMachine)(Handle, const char*, const char*, const char*, int, int, int);
  void (*DisposeTargetMachine)(Handle);
  Handle (*CreateTargetDataLayout)(Handle);
  void (*SetModuleDataLayout)(Handle, Handle);
  void (*DisposeTargetData)(Handle);
  void (*SetTarget)(Handle, const char*);
  int (*TargetMachineEmitToMemoryBuffer)(Handle, Handle, int, char**, Handle*);
  Handle (*CreatePassBuilderOptions)();
  void (*DisposePassBuilderOptions)(Handle);
  Handle (*RunPasses)(Handle, const char*, Handle, Handle);
  char* (*GetErrorMessage)(Handle);
  void (*DisposeErrorMessage)(char*);
  // NOLINTEND(readability-identifier-naming)

  // The name of the first function that the library lacks; null: all are there.
  const char* resolve(void* library) {
    const char* missing = nullptr;
    auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      if (function == nullptr && missing == nullptr) missing = name;
    };
#define SOFTGPU_FIND(name) find(name, "LLVM" #name)
    SOFTGPU_FIND(InitializeX86TargetInfo);
    SOFTGPU_FIND(InitializeX86Target);
    SOFTGPU_FIND(InitializeX86TargetMC);
    SOFTGPU_FIND(InitializeX86AsmPrinter);
    SOFTGPU_FIND(ParseCommandLineOptions);
    SOFTGPU_FIND(ContextCreate);
    SOFTGPU_FIND(ContextDispose);
    SOFTGPU_FIND(CreateMemoryBufferWithMemoryRangeCopy);
    SOFTGPU_FIND(GetBufferStart);
    SOFTGPU_FIND(GetBufferSize);
    SOFTGPU_FIND(DisposeMemoryBuffer);
    SOFTGPU_FIND(ParseIRInContext);
    SOFTGPU_FIND(DisposeModule);
    SOFTGPU_FIND(DisposeMessage);
    SOFTGPU_FIND(GetDefaultTargetTriple);
    SOFTGPU_FIND(GetHostCPUName);
    SOFTGPU_FIND(GetHostCPUFeatures);
    SOFTGPU_FIND(GetTargetFromTriple);
    SOFTGPU_FIND(CreateTargetMachine);
    SOFTGPU_FIND(DisposeTargetMachine);
    SOFTGPU_FIND(CreateTargetDataLayout);
    SOFTGPU_FIND(SetModuleDataLayout);
    SOFTGPU_FIND(DisposeTargetData);
    SOFTGPU_FIND(SetTarget);
    SOFTGPU_FIND(TargetMachineEmitToMemoryBuffer);
    SOFTGPU_FIND(CreatePassBuilderOptions);
    SOFTGPU_FIND(DisposePassBuilderOptions);
    SOFTGPU_FIND(RunPasses);
    SOFTGPU_FIND(GetErrorMessage);
    SOFTGPU_FIND(DisposeErrorMessage);
#undef SOFTGPU_FIND
    return missing;
  }

  // LLVM's error as text; true if there was one.
  bool failed(Handle error, std::string& text) const {
    if (error == nullptr) return false;
    char* const message = GetErrorMessage(error);
    text = message;
    DisposeErrorMessage(message);
    return true;
  }
  std::string taken(char* message) const {
    if (message == nullptr) return "no message";
    std::string text = message;
    DisposeMessage(message);
    return text;
  }
};

bool Llvm::open(std::string& why) {
  static Interface interface;
  void* library = nullptr;
  why.clear();
  for (const std::string& name : candidates()) {
    library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) continue;
    const char* const missing = interface.resolve(library);
    if (missing == nullptr) break;
    why = name + " lacks " + missing;
    library = nullptr;  // stays loaded: libraries of that size are not made to be unloaded
  }
  if (library == nullptr) {
    if (why.empty()) why = "no LLVM library of version 15 or later was found (libLLVM-15.so.1, ...)";
    return false;
  }
  interface_ = &interface;
  interface.ParseCommandLineOptions(static_cast<int>(std::size(left_out_passes)), left_out_passes, nullptr);
  interface.InitializeX86TargetInfo();
  interface.InitializeX86Target();
  interface.InitializeX86TargetMC();
  interface.InitializeX86AsmPrinter();
  triple_ = interface.taken(interface.GetDefaultTargetTriple());
  processor_ = interface.taken(interface.GetHostCPUName());
  features_ = interface.taken(interface.GetHostCPUFeatures());
  leave_out_instructions();
  char* message = nullptr;
  if (interface.GetTargetFromTriple(triple_.c_str(), &target_, &message) != 0) {
    why = interface.taken(message);
    return false;
  }
  Dl_info place{};
  struct stat file{};
  quick_ = quick_is_wanted();
  if (quick_) features_ += ",-vzeroupper";  // whose pass takes a seventh of the time
  identity_ = processor_ + "|" + features_ + "|" + (quick_ ? quick_passes : usual_passes);
  if (dladdr(reinterpret_cast<void*>(interface.ContextCreate), &place) != 0 && place.dli_fname != nullptr &&
      stat(place.dli_fname, &file) == 0) {
    identity_ = std::string(place.dli_fname) + "|" + std::to_string(file.st_size) + "|" +
                std::to_string(file.st_mtime) + "|" + identity_;
  }
  return true;
}

// Compiled kernels leave out the instructions that the interpreter is told to leave out. LLVM takes away with
// a feature what builds upon it.
void Llvm::leave_out_instructions() {
  const std::string_view wish = wished_instructions();
  if (wish == "baseline") {
    processor_ = "x86-64";
    features_ = "";
  } else if (wish == "avx2") {
    features_ += ",-avx512f";
  }
}

const Llvm* Llvm::get(std::string& why) {
  static gpupool::Mutex mutex;
  static Llvm* made = nullptr;
  static std::string reason;
  static bool tried = false;
  const gpupool::MutexLock lock(mutex);
  if (!tried) {
    tried = true;
    // Never destroyed: compiled code runs until the process ends.
    auto* const candidate = new Llvm();
    if (candidate->open(reason)) made = candidate;
  }
  why = reason;
  return made;
}

std::optional<std::vector<std::byte>> Llvm::compile(const std::string& text, std::string& error) const {
  const Interface& llvm = *interface_;
  void* const context = llvm.ContextCreate();
  void* const source = llvm.CreateMemoryBufferWithMemoryRangeCopy(text.data(), text.size(), "kernel");
  void *module = nullptr, *object = nullptr;
  char* message = nullptr;
  std::optional<std::vector<std::byte>> result;
  if (llvm.ParseIRInContext(context, source, &module, &message) != 0) {
    error = llvm.taken(message);
    llvm.ContextDispose(context);
    return result;
  }
  void* const machine = llvm.CreateTargetMachine(
      target_, triple_.c_str(), processor_.c_str(), features_.c_str(),
      quick_ ? code_generation_none : code_generation_default, position_independent, small_code);
  void* const layout = llvm.CreateTargetDataLayout(machine);
  llvm.SetModuleDataLayout(module, layout);
  llvm.SetTarget(module, triple_.c_str());
  llvm.DisposeTargetData(layout);
  void* const options = llvm.CreatePassBuilderOptions();
  const bool failed =
      llvm.failed(llvm.RunPasses(module, quick_ ? quick_passes : usual_passes, machine, options), error);
  llvm.DisposePassBuilderOptions(options);
  if (!failed) {
    if (llvm.TargetMachineEmitToMemoryBuffer(machine, module, object_file, &message, &object) != 0) {
      error = llvm.taken(message);
    } else {
      const auto* const bytes = reinterpret_cast<const std::byte*>(llvm.GetBufferStart(object));
      result.emplace(bytes, bytes + llvm.GetBufferSize(object));
      llvm.DisposeMemoryBuffer(object);
    }
  }
  llvm.DisposeTargetMachine(machine);
  llvm.DisposeModule(module);
  llvm.ContextDispose(context);
  return result;
}

}  // namespace softgpu::jit
