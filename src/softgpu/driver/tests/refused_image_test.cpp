// An image that does not load says why: in cuLogs*, on standard error, and in the logs of the call.
#include <array>
#include <cstring>
#include <string>

#include "driver_fixture.h"

namespace {

const std::string header = ".version 8.0\n.target sm_80\n.address_size 64\n";

struct Outcome {
  CUresult result = CUDA_SUCCESS;
  std::string told, error_log;
  std::size_t error_size = 0, info_size = 0;
};

Outcome load(const void* image, bool as_library) {
  Outcome out;
  CUlogIterator from = 0;
  REQUIRE_CUDA(cuLogsCurrent(&from, 0));
  std::array<char, 512> error, info;
  error.fill('#');
  info.fill('#');
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                            CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {error.data(), reinterpret_cast<void*>(error.size()), info.data(),
                    reinterpret_cast<void*>(info.size())};
  CUmodule module = nullptr;
  CUlibrary library = nullptr;
  out.result = as_library ? cuLibraryLoadData(&library, image, options, values, 4, nullptr, nullptr, 0)
                          : cuModuleLoadDataEx(&module, image, 4, options, values);
  CHECK(memchr(error.data(), 0, error.size()) != nullptr);
  CHECK(memchr(info.data(), 0, info.size()) != nullptr);
  out.error_log = error.data();
  out.error_size = reinterpret_cast<std::size_t>(values[1]);
  out.info_size = reinterpret_cast<std::size_t>(values[3]);
  std::string text(4096, '\0');
  std::size_t size = text.size();
  REQUIRE_CUDA(cuLogsDumpToMemory(&from, text.data(), &size, 0));
  out.told = text.c_str();
  return out;
}

void check_told(const void* image, CUresult expected, const std::string& sentence, const std::string& why) {
  for (const bool as_library : {false, true}) {
    const Outcome out = load(image, as_library);
    INFO(out.told);
    INFO(out.error_log);
    CHECK_EQ(out.result, expected);
    CHECK(out.told.find(sentence + ": ") != std::string::npos);
    CHECK(out.told.find(why) != std::string::npos);
    CHECK(out.error_log.find(why) != std::string::npos);
    CHECK_EQ(out.error_size, out.error_log.size());
    CHECK_EQ(out.info_size, 0);
  }
}

}  // namespace

TEST_CASE("PTX that does not compile says why") {
  CurrentContext context;
  const std::string sentence = "a PTX JIT compilation failed";
  check_told((header + ".entry k() { frobnicate.b32 1; ret; }").c_str(), CUDA_ERROR_INVALID_PTX, sentence,
             "frobnicate");
  check_told((header + ".entry k() { ret }").c_str(), CUDA_ERROR_INVALID_PTX, sentence, "line 4: ");
  check_told((header + ".entry k() { .reg .b64 %x; mov.u64 %x, nowhere; ret; }").c_str(),
             CUDA_ERROR_INVALID_PTX, sentence, "symbol 'nowhere' is not defined");
  check_told(".version 8.0\n.target sm_999\n.address_size 64\n.entry k() { ret; }", CUDA_ERROR_INVALID_PTX,
             sentence, "sm_999");
  check_told((header + ".extern .func (.param .b32 r) cudaLaunchDeviceV2(.param .b64 a, .param .b64 s);\n"
                       ".entry k() { { .param .b64 a; .param .b64 s; .param .b32 r; "
                       "call (r), cudaLaunchDeviceV2, (a, s); } ret; }")
                 .c_str(),
             CUDA_ERROR_INVALID_PTX, sentence, "dynamic parallelism");
}

TEST_CASE("machine code says what runs instead") {
  CurrentContext context;
  std::array<char, 128> code{};
  std::memcpy(code.data(),
              "\x7f"
              "ELF",
              4);
  check_told(code.data(), CUDA_ERROR_NO_BINARY_FOR_GPU,
             "no kernel image is available for execution on the device", "a software GPU runs PTX");
}
