// What a session does with messages that a correct client would not send, or not in this order.
#include "worker/test_driver/session_test_client.h"

#include <string>

using namespace gpupool;
using worker::SessionTestClient;

namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

struct Options {
  wire::Buffer buffer;
  Options& add(std::int32_t option, bool is_buffer, std::uint64_t value) {
    wire::Writer out(buffer);
    out.put(option);
    out.put(static_cast<std::uint8_t>(is_buffer));
    out.put(value);
    return *this;
  }
};

/// The driver writes as much log as the options let it; the result of loading, and the first log.
int load_with(SessionTestClient& client, const Options& options, std::string* log = nullptr) {
  static std::uint32_t index = 0;
  messages::LoadImage load;
  load.image = SessionTestClient::handle(wire::Kind::module, ++index);
  load.options = options.buffer.bytes();
  const auto answer = client.ask(load, bytes_of(".version 8.0"));
  replies::LoadImage reply;
  wire::Reader in(answer.fields);
  if (log != nullptr && replies::LoadImage::decode(in, reply)) {
    *log = wire::Reader(reply.logs).get_text();
  }
  return answer.header.result;
}

}  // namespace

TEST_CASE("options of the compiler bring no address and no size of their own") {
  SessionTestClient client;
  CHECK(load_with(client, {}) == CUDA_SUCCESS);
  CHECK(load_with(client, Options{}
                              .add(CU_JIT_ERROR_LOG_BUFFER, false, 0x4141414141414140)
                              .add(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, false, 4096)) ==
        CUDA_ERROR_INVALID_VALUE);
  // The sizes disagree: that of the buffer counts.
  std::string log;
  CHECK(load_with(client,
                  Options{}
                      .add(CU_JIT_ERROR_LOG_BUFFER, true, 3)
                      .add(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, false, 1 << 20),
                  &log) == CUDA_SUCCESS);
  CHECK(log == "ee");
  CHECK(load_with(client,
                  Options{}
                      .add(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, false, 1 << 20)
                      .add(CU_JIT_ERROR_LOG_BUFFER, true, 0),
                  &log) == CUDA_SUCCESS);
  CHECK(log.empty());
  for (int option : {-1, 17, 18, 19, 25, 26, 27, 28, 35, 1000}) {  // addresses, their counts, unknown ones
    CHECK(load_with(client, Options{}.add(option, false, 1)) == CUDA_ERROR_INVALID_VALUE);
    CHECK(load_with(client, Options{}.add(option, true, 1)) == CUDA_ERROR_INVALID_VALUE);
  }
  CHECK(load_with(client, Options{}.add(CU_JIT_MAX_REGISTERS, true, 64)) == CUDA_ERROR_INVALID_VALUE);
  CHECK(load_with(client, Options{}.add(CU_JIT_ERROR_LOG_BUFFER, true, (1 << 20) + 1)) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(load_with(client, Options{}
                              .add(CU_JIT_MAX_REGISTERS, false, 64)
                              .add(CU_JIT_WALL_TIME, false, 0x4141414141414140)
                              .add(CU_JIT_OPTIMIZATION_LEVEL, false, 4)) == CUDA_SUCCESS);
}

TEST_CASE("an image that names an address is not shown to the driver") {
  SessionTestClient client;
  std::string wrapper("\xb1\x43\x62\x46\x01\0\0\0@AAAAAAA\0\0\0\0\0\0\0\0", 24);
  messages::LoadImage load;
  load.image = SessionTestClient::handle(wire::Kind::module, 1);
  CHECK(client.ask(load, bytes_of(wrapper)).header.result == CUDA_ERROR_INVALID_IMAGE);
  messages::LinkCreate create;
  create.link = SessionTestClient::handle(wire::Kind::link, 1);
  client.post(create);
  messages::LinkAdd add;
  add.link = create.link;
  for (add.type = 0; add.type < 6; ++add.type) {
    CHECK(client.ask(add, bytes_of(wrapper)).header.result == CUDA_ERROR_INVALID_IMAGE);
  }
  add.type = CU_JIT_INPUT_PTX;
  CHECK(client.ask(add, bytes_of(".version 8.0")).header.result == CUDA_SUCCESS);
  Options log;
  log.add(CU_JIT_ERROR_LOG_BUFFER, true, 64);  // which the driver would keep
  add.options = log.buffer.bytes();
  CHECK(client.ask(add, bytes_of(".version 8.0")).header.result == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a mapping that was refused and freed is not made up for") {
  SessionTestClient client;
  REQUIRE(client.state.gate.revoke(1) == worker::LeaseAnswer::ok);
  messages::MapMemory map;
  map.address = SessionTestClient::arena;
  map.size = 16 * SessionTestClient::granularity;
  messages::UnmapMemory unmap;
  unmap.address = map.address;
  unmap.size = map.size;
  client.post(map);
  client.post(unmap);
  messages::MapMemory kept = map;
  kept.address += map.size;
  kept.size = SessionTestClient::granularity;
  client.post(kept);
  static_cast<void>(client.deferred());  // that there was no lease
  client.grant(2);
  CHECK(client.control(wire::Control::lease).header.deferred_error == CUDA_SUCCESS);
  CHECK(client.state.memory[0].used() == kept.size);
  client.post(map);  // the place is free
  CHECK(client.deferred() == CUDA_SUCCESS);
  client.post(unmap);
  CHECK(client.deferred() == CUDA_SUCCESS);
  CHECK(client.state.memory[0].used() == kept.size);
}

TEST_CASE("a copy from host memory is not captured into a graph") {
  SessionTestClient client;
  messages::cuStreamCreate create;
  create.phStream = SessionTestClient::handle(wire::Kind::stream, 3);
  client.post(create);
  messages::CopyFromHostInline small;
  small.address = SessionTestClient::arena;
  small.stream = create.phStream;
  small.asynchronous = 1;
  const std::string bytes(16, 'b');
  small.data = bytes_of(bytes);
  client.post(small);
  CHECK(client.deferred() == CUDA_SUCCESS);

  for (const bool inlined : {true, false}) {
    messages::cuStreamBeginCapture_v2 begin;
    begin.hStream = create.phStream;
    CHECK(client.ask(begin).header.result == CUDA_SUCCESS);
    if (inlined) {
      client.post(small);
    } else {
      messages::CopyFromHost large;
      large.address = small.address;
      large.stream = small.stream;
      large.asynchronous = 1;
      client.post(large, bytes_of(bytes));
    }
    CHECK(client.deferred() == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    messages::cuStreamEndCapture end;
    end.hStream = create.phStream;
    end.phGraph = SessionTestClient::handle(wire::Kind::graph, inlined ? 1 : 2);
    CHECK(client.ask(end).header.result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  }
  client.post(small);
  CHECK(client.deferred() == CUDA_SUCCESS);
}

namespace {

/// A session whose device reads pinned memory only when somebody waits for it.
struct StagedSession {
  StagedSession() { worker::of_test_driver<bool>("test_driver_uses_pinned") = true; }
  ~StagedSession() {
    worker::of_test_driver<bool>("test_driver_uses_pinned") = false;
    worker::of_test_driver<CUresult>("test_driver_next_wait") = CUDA_SUCCESS;
  }

  SessionTestClient client;

  void select(std::uint64_t context) {
    messages::SelectContext select;
    select.context = context;
    client.post(select);
  }
  std::uint64_t create_context() {
    messages::CreateContext create;
    create.context = SessionTestClient::handle(wire::Kind::context, 9);
    CHECK(client.ask(create).header.result == CUDA_SUCCESS);
    return create.context;
  }
  void copy(std::uint64_t to, char content, std::uint64_t stream = 0) {
    messages::CopyFromHost copy;
    copy.address = to;
    copy.stream = stream;
    copy.asynchronous = 1;
    client.post(copy, bytes_of(std::string(content_size, content)));
  }
  void synchronize(std::uint64_t context) {
    messages::SynchronizeContext synchronize;
    synchronize.context = context;
    CHECK(client.ask(synchronize).header.result == CUDA_SUCCESS);
  }
  static std::string read(std::uint64_t from) {
    auto& call =
        worker::of_test_driver<std::size_t(CUdeviceptr, std::byte*, std::size_t)>("test_driver_read");
    std::string bytes(content_size, '?');
    bytes.resize(call(from, reinterpret_cast<std::byte*>(bytes.data()), bytes.size()));
    return bytes;
  }

  static constexpr std::size_t content_size = 1000;
};

constexpr std::uint64_t place = 0x1000, other_place = 0x2000;

}  // namespace

TEST_CASE("a staged copy in one context is complete before another context's copy uses its memory") {
  StagedSession staged;
  const std::uint64_t primary = SessionTestClient::context(), second = staged.create_context();
  staged.copy(place, 'a');
  staged.select(second);
  staged.copy(other_place, 'b');
  staged.synchronize(second);
  staged.synchronize(primary);
  CHECK(staged.read(place) == std::string(StagedSession::content_size, 'a'));
  CHECK(staged.read(other_place) == std::string(StagedSession::content_size, 'b'));
  CHECK(staged.client.deferred() == CUDA_SUCCESS);
}

TEST_CASE("a staged copy outlives its stream") {
  StagedSession staged;
  messages::cuStreamCreate create;
  create.phStream = SessionTestClient::handle(wire::Kind::stream, 5);
  staged.client.post(create);
  staged.copy(place, 'c', create.phStream);
  messages::cuStreamDestroy_v2 destroy;
  destroy.hStream = create.phStream;
  staged.client.post(destroy);
  staged.copy(other_place, 'd');
  staged.synchronize(SessionTestClient::context());
  CHECK(staged.read(place) == std::string(StagedSession::content_size, 'c'));
  CHECK(staged.read(other_place) == std::string(StagedSession::content_size, 'd'));
  CHECK(staged.client.deferred() == CUDA_SUCCESS);
}

TEST_CASE("staging memory outlives the context that first used it") {
  StagedSession staged;
  const std::uint64_t second = staged.create_context();
  staged.select(second);
  staged.copy(place, 'e');
  messages::DestroyContext destroy;
  destroy.context = second;
  staged.client.post(destroy);
  staged.select(SessionTestClient::context());
  staged.copy(other_place, 'f');
  staged.copy(place, 'g');
  staged.synchronize(SessionTestClient::context());
  CHECK(staged.read(other_place) == std::string(StagedSession::content_size, 'f'));
  CHECK(staged.read(place) == std::string(StagedSession::content_size, 'g'));
  CHECK(staged.client.deferred() == CUDA_SUCCESS);
  destroy.context = SessionTestClient::context();  // the session's own
  staged.client.post(destroy);
  CHECK(staged.client.deferred() == CUDA_ERROR_INVALID_CONTEXT);
}

TEST_CASE("an error of a staged copy is reported by the next") {
  StagedSession staged;
  staged.copy(place, 'h');
  CHECK(staged.client.deferred() == CUDA_SUCCESS);
  worker::of_test_driver<CUresult>("test_driver_next_wait") = CUDA_ERROR_ILLEGAL_ADDRESS;
  staged.copy(place, 'i');
  CHECK(staged.client.deferred() == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("a context keeps no dumps of the GPU's memory on the node, and its other flags") {
  SessionTestClient client;
  messages::CreateContext create;
  create.context = SessionTestClient::handle(wire::Kind::context, 5);
  create.flags =
      CU_CTX_SCHED_BLOCKING_SYNC | CU_CTX_MAP_HOST | CU_CTX_COREDUMP_ENABLE | CU_CTX_USER_COREDUMP_ENABLE;
  CHECK(client.ask(create).header.result == CUDA_SUCCESS);
  CHECK(worker::of_test_driver<unsigned>("test_driver_context_flags") ==
        (CU_CTX_SCHED_BLOCKING_SYNC | CU_CTX_MAP_HOST));
}

namespace {

constexpr std::uint64_t mib = 1 << 20;

/// A share of 64 MiB, of which each context takes 16.
struct ContextsOfAShare {
  SessionTestClient client{64 * mib, {}, {"01010101010101010101010101010101"}, 16 * mib};

  int create(std::uint32_t index) {
    messages::CreateContext create;
    create.context = SessionTestClient::handle(wire::Kind::context, index);
    return client.ask(create).header.result;
  }
  void destroy(std::uint32_t index) {
    messages::DestroyContext destroy;
    destroy.context = SessionTestClient::handle(wire::Kind::context, index);
    client.post(destroy);
    CHECK(client.deferred() == CUDA_SUCCESS);
  }
  int set_limit(CUlimit limit, std::uint64_t value) {
    messages::cuCtxSetLimit set;
    set.limit = limit;
    set.value = value;
    return client.ask(set).header.result;
  }
  [[nodiscard]] std::uint64_t used() const { return client.state.memory[0].used(); }
};

}  // namespace

TEST_CASE("each further context takes its reserve of the share, until it goes") {
  ContextsOfAShare share;
  CHECK(share.used() == 16 * mib);
  for (std::uint32_t index = 5; index < 8; ++index) CHECK(share.create(index) == CUDA_SUCCESS);
  CHECK(share.used() == 64 * mib);
  CHECK(share.create(8) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(share.used() == 64 * mib);
  share.destroy(6);
  CHECK(share.used() == 48 * mib);
  worker::of_test_driver<CUresult>("test_driver_next_context") = CUDA_ERROR_OUT_OF_MEMORY;
  CHECK(share.create(8) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(share.used() == 48 * mib);
  CHECK(share.create(8) == CUDA_SUCCESS);
  CHECK(share.used() == 64 * mib);
}

TEST_CASE("stacks of more than the usual size count for each thread that the device can hold") {
  ContextsOfAShare share;  // whose device holds one thread, and whose limits are 1 MiB at first
  CHECK(share.set_limit(CU_LIMIT_STACK_SIZE, 9 * mib) == CUDA_SUCCESS);
  CHECK(share.used() == 24 * mib);
  CHECK(share.set_limit(CU_LIMIT_STACK_SIZE, 1000 * mib) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(share.used() == 24 * mib);
  CHECK(share.set_limit(CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, 1000 * mib) == CUDA_SUCCESS);
  CHECK(share.used() == 24 * mib);
}

TEST_CASE("what many threads take of a limit does not overflow") {
  using worker::ContextLimits;
  CHECK(ContextLimits::bytes(1024, 270336) == 1024 * std::uint64_t{270336});
  CHECK(ContextLimits::bytes(~std::uint64_t{0}, 0) == 0);
  CHECK(ContextLimits::bytes(~std::uint64_t{0} / 2, 3) == ~std::uint64_t{0});
}
