// What a client is told of the kernels of an image.
#include <string>

#include "protocol/kernel_info.h"
#include "worker/test_driver/session_test_client.h"

using namespace gpupool;
using worker::SessionTestClient;

TEST_CASE("all attributes of a kernel that a lazy driver has not loaded are told") {
  SessionTestClient client;
  messages::LoadImage load;
  load.image = SessionTestClient::handle(wire::Kind::module, 7);
  const std::string ptx = ".version 8.0\n ";
  const auto answer = client.ask(load, std::as_bytes(std::span(ptx)));
  REQUIRE(answer.header.result == CUDA_SUCCESS);
  replies::LoadImage reply;
  wire::Reader in(answer.fields);
  REQUIRE(replies::LoadImage::decode(in, reply));
  wire::Reader kernels(reply.kernels);
  REQUIRE(kernels.get<std::uint32_t>() == 2);
  for (int n = 0; n < 2; ++n) {
    KernelInfo info;
    REQUIRE(KernelInfo::decode(kernels, info));
    CHECK(info.answered == (1u << KernelInfo::attribute_count) - 1);
    CHECK(info.attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] == 100);
    CHECK(info.attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] == 108);
  }
}
