#include "wire/frame.h"

#include <doctest/doctest.h>

#include "wire/bytes.h"
#include "wire/handle.h"
#include "wire/hello.h"

using namespace gpupool::wire;

namespace {
FrameHeader header(std::uint32_t length, std::uint16_t flags = 0) {
  return {length, first_call, flags, 1, 0, 1};
}
}  // namespace

TEST_CASE("a frame is at least its header and at most the limit") {
  CHECK(valid(header(24)));
  CHECK_FALSE(valid(header(23)));
  CHECK_FALSE(valid(header(0)));
  CHECK(valid(header(max_frame)));
  CHECK_FALSE(valid(header(max_frame + 1)));
  CHECK_FALSE(valid(header(max_frame_before_hello + 1), max_frame_before_hello));
}

TEST_CASE("flags demand room for what they announce") {
  CHECK_FALSE(valid(header(24, flag_bulk)));
  CHECK(valid(header(32, flag_bulk)));
  CHECK_FALSE(valid(header(24 + 15, flag_reply)));
  CHECK(valid(header(24 + 16, flag_reply)));
  CHECK_FALSE(valid(header(24 + 16, flag_reply | flag_bulk)));
  CHECK_FALSE(valid(header(24, 0x8000)));
}

TEST_CASE("a reader never passes the end, and stays failed") {
  Buffer bytes;
  Writer out(bytes);
  out.put(std::uint32_t{7});
  out.put_text("abc");
  Reader in(bytes.bytes());
  CHECK(in.get<std::uint32_t>() == 7);
  CHECK(in.get_text() == "abc");
  CHECK(in.finished());
  CHECK(in.get<std::uint8_t>() == 0);
  CHECK_FALSE(in.ok());
}

TEST_CASE("a length that promises more than there is yields nothing") {
  Buffer bytes;
  Writer(bytes).put(std::uint32_t{0xffffffff});
  Reader in(bytes.bytes());
  CHECK(in.get_bytes().empty());
  CHECK_FALSE(in.ok());
}

TEST_CASE("handles are never addresses or special streams, and carry kind, generation and index") {
  const Handle handle{Kind::event, 0xabcd, 12345};
  CHECK(handle.value() >= std::uint64_t{1} << 48);
  const Handle back = Handle::from(handle.value());
  CHECK(back.kind == Kind::event);
  CHECK(back.generation == 0xabcd);
  CHECK(back.index == 12345);
  CHECK(Handle::from(0).kind == Kind::none);
  CHECK(Handle::from(2).kind == Kind::none);
  CHECK(Handle::from(0x00007f0012345678).kind == Kind::none);
  CHECK(Handle::from(~std::uint64_t{0}).kind == Kind::none);
}

TEST_CASE("the answer to HELLO is decoded as it was encoded; impossible counts are refused") {
  HelloReply reply;
  reply.fingerprint = 42;
  reply.devices.push_back({1u << 21, 1u << 30, 1u << 21, 77});
  reply.profile = "driver_version 13000\n";
  Buffer bytes;
  Writer out(bytes);
  reply.encode(out);
  HelloReply back;
  Reader in(bytes.bytes());
  REQUIRE(HelloReply::decode(in, back));
  CHECK(back.fingerprint == 42);
  CHECK(back.devices.size() == 1);
  CHECK(back.devices[0].limit == 77);
  CHECK(back.profile == reply.profile);

  Buffer hostile;
  Writer bad(hostile);
  bad.put(std::uint32_t{1});
  bad.put(std::uint32_t{1000000});
  Reader again(hostile.bytes());
  HelloReply refused;
  CHECK_FALSE(HelloReply::decode(again, refused));
}
