// Writes inputs from which fuzzing starts: fuzz_seeds FOLDER makes FOLDER/<target>/*.
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "fuzz/seed_folder.h"
#include "fuzz/worker_frames.h"
#include "generated/wire/control.h"
#include "image/test_cubin.h"
#include "protocol/kernel_info.h"
#include "protocol/random_body.h"
#include "protocol/random_fill.h"
#include "wire/handle.h"
#include "wire/hello.h"

using namespace gpupool;
using fuzz::seeds::write;

namespace {

fuzz::FrameRecord record(unsigned row, random_fill::Source& source, wire::Buffer& body) {
  body.clear();
  wire::Writer out(body);
  random_bodies[row](source, out);
  fuzz::FrameRecord made;
  made.message = static_cast<std::uint16_t>(row);
  made.payload = static_cast<std::uint16_t>(source.random() % 6000);
  made.body = body.bytes();
  return made;
}

/// One script per message, and long ones of random messages.
void worker_sessions() {
  for (unsigned n = 0; n < message_count + 30; ++n) {
    random_fill::Source source(n + 1);
    source.arena = fuzz::arena;
    std::vector<std::byte> script;
    wire::Buffer body;
    for (int frame = 0; frame < (n < message_count ? 4 : 60); ++frame) {
      const unsigned row = n < message_count ? n : static_cast<unsigned>(source.random() % message_count);
      const auto made = record(row, source, body);
      fuzz::append_record(script, made, worker::dispatch_table[row].has_payload);
    }
    write("worker_session", "seed-" + std::to_string(n), script);
  }
}

template <class T>
std::string encoded(const std::string& which, const T& value) {
  wire::Buffer buffer;
  wire::Writer out(buffer);
  value.encode(out);
  return which + std::string(reinterpret_cast<const char*>(buffer.data()), buffer.size());
}

wire::HelloReply hello_reply() {
  wire::HelloReply hello;
  hello.devices.resize(2);
  hello.profile = "driver_version 13000\n";
  return hello;
}

void decoded_replies() {
  const wire::ShareLimit limit{1, 2u << 20, 3};
  wire::StatsReply stats;
  stats.memory = {{4, 5}, {6, 7}};
  stats.failure = 700;
  KernelInfo kernel;
  kernel.name = "saxpy";
  kernel.described = true;
  kernel.parameters = {{0, 8}, {8, 4}, {16, 8}};
  const auto number = [](unsigned n) {
    return std::string{static_cast<char>(n % 256), static_cast<char>(n / 256)};
  };
  write("client_replies", "hello", encoded(number(message_count), hello_reply()));
  write("client_replies", "limit", encoded(number(message_count + 1), limit));
  write("client_replies", "stats", encoded(number(message_count + 2), stats));
  write("client_replies", "kernel", encoded(number(message_count + 3), kernel));
  for (unsigned n = 0; n < message_count; ++n) {
    write("client_replies", "zeros-" + std::to_string(n), number(n) + std::string(24, '\0'));
  }
}

template <class T>
void push(std::vector<std::byte>& script, wire::Control message, const T& value, std::uint16_t payload = 0) {
  wire::Buffer body;
  wire::Writer out(body);
  value.encode(out);
  fuzz::append_record(script, {static_cast<std::uint16_t>(message), 0, payload, body.bytes()},
                      message == wire::Control::copied);
}

void connections() {
  std::vector<std::byte> script;
  for (unsigned n = 0; n < 7; ++n) {
    wire::Buffer body;
    wire::Writer out(body);
    out.put(wire::ReplyHeader{});
    if (n == 0) {
      hello_reply().encode(out);
    } else {
      out.put(std::uint64_t{n});
    }
    fuzz::FrameRecord made;
    made.message = static_cast<std::uint16_t>(n == 3 ? 130 : n - 1);
    made.payload = n == 3 ? 100 : 0;
    made.body = body.bytes();
    fuzz::append_record(script, made, n == 3);
    write("client_connection", "replies-" + std::to_string(n), script);
    const wire::Buffer output = wire::packed(wire::Output{1});
    made = {static_cast<std::uint16_t>(wire::Control::output), 0, 20, output.bytes()};
    if (n == 4) fuzz::append_record(script, made, true);
    if (n != 1) continue;
    for (const auto kind : {wire::Kind::stream, wire::Kind::event, wire::Kind::context})
      push(script, wire::Control::completed, wire::Completed{wire::Handle{kind, 0, 0}.value(), 3, 0, 0, 0});
    push(script, wire::Control::charged, wire::DeviceBytes{0, 1 << 20});
    push(script, wire::Control::memory_refused, wire::DeviceBytes{0, 1 << 30});
    push(script, wire::Control::share_limit, wire::ShareLimit{0, 1 << 28, 1});
    push(script, wire::Control::copied, wire::Copied{1, 0}, 1);
    push(script, wire::Control::copied, wire::Copied{2, 0}, 100);
    push(script, wire::Control::copied, wire::Copied{3, 700});
    write("client_connection", "pushes", script);
  }
}

/// A frame as it comes out of a ring.
std::vector<std::byte> whole_frame(std::size_t body) {
  wire::FrameHeader header{};
  header.length = static_cast<std::uint32_t>(sizeof(header) + body);
  header.message = wire::first_call;
  std::vector<std::byte> bytes(header.length, std::byte{'x'});
  std::memcpy(bytes.data(), &header, sizeof(header));
  return bytes;
}

void rings() {
  write("shared_ring", "round", std::string("\x04\x00\x20\x00\x01\x40\x00\x09\x00\x20\x00\x01\x40\x00", 14));
  write("shared_ring", "lies",
        std::string("\x08\x00\x40\x00\x04\x10\x80\x01\x40\x00\x05\x00\x70\x00\x10\x00", 16));
  write("shared_ring", "far",
        std::string("\x08\x00\x40\x00\x02", 5) + std::string(8, '\xff') + std::string("\x01\x40\x00\x03", 4) +
            std::string(8, '\x7f') + std::string("\x00\x40\x00", 3));
  const auto frame = whole_frame(30);
  const std::string bytes(reinterpret_cast<const char*>(frame.data()), frame.size());
  const std::string honest = std::string(1, '\0') + static_cast<char>(bytes.size()) + bytes;
  for (const char side : {'\1', '\2'}) {
    const std::string name = side == 1 ? "worker" : "client";
    write("shared_memory", name + "-frames", side + honest + honest + '\x09');
    write("shared_memory", name + "-both",
          side + honest + std::string("\x07\x06\x40\x00\x05\x08\x20\x00\x06\x00\x10\x05\x09", 13));
    write("shared_memory", name + "-lie", side + honest + '\1' + std::string(8, '\xff') + "\x07\x09");
  }
  std::string announcement("GPSM\1\0\0\0\0\x10\0\0\0\0\0\0", 16);
  for (char which = 0; which < 8; ++which)
    write("shared_memory", "announced-" + std::to_string(which),
          std::string(1, '\0') + which + '\1' + announcement);
}

void texts() {
  const std::string hex(32, 'a'), token(64, 'b');
  write("worker_texts", "record",
        std::string(1, '\0') + "session " + hex + "\ntoken " + token + "\nepoch 7\ndevice 1 " + hex +
            " 200 1638\ndeadline_ns 123456789\n"
            "image_cache /run/i\nimage_cache_mib 64\n\n");
  write("worker_texts", "lease", "\1lease epoch=8 deadline_ns=123456 share=0:200:1638,1:500:4096");
  write("worker_texts", "revoke", "\1revoke epoch=8");
  const auto hello = fuzz::hello_of(1);
  write("worker_texts", "hello",
        "\2" + std::string(reinterpret_cast<const char*>(hello.data()), hello.size()));
  for (const auto& [name, message] :
       {std::pair{"inquire", wire::Control::inquire}, std::pair{"end_session", wire::Control::end_session}}) {
    auto question = hello;
    const auto number = static_cast<std::uint16_t>(message);
    std::memcpy(question.data() + offsetof(wire::FrameHeader, message), &number, sizeof(number));
    write("worker_texts", name,
          "\2" + std::string(reinterpret_cast<const char*>(question.data()), question.size()));
  }
  write("client_texts", "session",
        std::string(1, '\0') + "version 1\nstate attached\nsession " + hex +
            "\nepoch 7\naddress h:1\ntoken " + token + "\nsoftware 1\nprofile /p\nlog /l\n");
  write("client_texts", "profile",
        "\1driver_version 13000\ndevice 0\nname X\nuuid " + hex +
            "\nsoftware 1\ntotal_mib 8192\npci 0000:00:00.0\nattribute 75 12\nend\n");
  write("client_texts", "shares", "\2profile /a b/profile\nshare 0:200:1638,1:500:4096\n");
  write("client_texts", "counters",
        "\3{\"calls\":3,\"worker\":{\"device_seconds\":1.25,\"memory_used\":[1024,2048]},\"state\":"
        "\"attached\"}");
}

void images() {
  write("images", "cubin", image::TestCubin::make());
  write("images", "cubin-120", image::TestCubin::make(120));
  write("images", "ptx", ".version 8.0\n.target sm_80\n.address_size 64\n");
  // One PTX entry behind its header, as nvcc writes it.
  const std::string ptx = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n";
  std::string entry(64, '\0');
  const auto put = [](std::string& to, std::size_t at, auto value) {
    std::memcpy(&to[at], &value, sizeof(value));
  };
  put(entry, 0, std::uint16_t{1});
  put(entry, 2, std::uint16_t{0x101});
  put(entry, 4, std::uint32_t{64});
  put(entry, 8, static_cast<std::uint64_t>(ptx.size()));
  put(entry, 28, std::uint32_t{80});
  std::string fatbin(16, '\0');
  put(fatbin, 0, std::uint32_t{0xba55ed50});
  put(fatbin, 4, std::uint16_t{1});
  put(fatbin, 6, std::uint16_t{16});
  put(fatbin, 8, static_cast<std::uint64_t>(entry.size() + ptx.size()));
  write("images", "fatbin", fatbin + entry + ptx);
  const std::string cubin = image::TestCubin::make();
  put(entry, 0, std::uint16_t{2});
  put(entry, 8, static_cast<std::uint64_t>(cubin.size()));
  put(fatbin, 8, static_cast<std::uint64_t>(entry.size() + cubin.size()));
  write("images", "fatbin-cubin", fatbin + entry + cubin);
  const std::string member(".version 8.0\n");
  char header[61];
  std::snprintf(header, sizeof(header), "%-16s%-12s%-6s%-6s%-8s%-10zu`\n", "a.ptx/", "0", "0", "0", "644",
                member.size());
  write("images", "archive", "!<arch>\n" + std::string(header) + member);
}

void turns() {
  std::string operations;
  for (int what = 0; what < 24; ++what) {
    operations += static_cast<char>(what);
    if (what % 2 == 1) operations += static_cast<char>(what);
    operations += std::string(7, '\1') + '\0';
  }
  for (char kind = 0; kind < 4; ++kind) {
    write("turn_file", "zeros-" + std::to_string(kind),
          std::string(1, kind) + std::string(64, '\0') + operations);
    write("turn_file", "ones-" + std::to_string(kind),
          std::string(1, kind) + std::string(64, '\1') + operations);
  }
}

void ptx() {
  const std::string head = ".version 8.0\n.target sm_80\n.address_size 64\n";
  const std::string add =
      head +
      ".visible .entry add(.param .u64 p, .param .u32 n) {\n .reg .pred %p<2>; .reg .b32 %r<6>; .reg "
      ".b64 %d<4>; .reg .f32 %f<3>;\n"
      " ld.param.u64 %d1, [p]; ld.param.u32 %r1, [n]; mov.u32 %r2, %tid.x; setp.ge.s32 %p1, %r2, %r1; "
      "@%p1 bra L;\n"
      " mul.wide.s32 %d2, %r2, 4; add.s64 %d3, %d1, %d2; ld.global.f32 %f1, [%d3]; fma.rn.f32 %f2, "
      "%f1, %f1, 0f3F800000;\n"
      " st.global.f32 [%d3], %f2;\nL: ret; }\n";
  const std::string shared =
      head +
      ".shared .align 8 .b8 tile[256];\n.const .f64 c[2] = {1.5, 0d4000000000000000};\n"
      ".func (.param .b32 r) f(.param .b32 a) { .reg .b32 %r<3>; ld.param.b32 %r1, [a]; add.s32 %r2, "
      "%r1, 1; st.param.b32 [r], %r2; ret; }\n"
      ".visible .entry k() { .reg .b32 %r<4>; mov.u32 %r1, %tid.x; st.shared.u32 [tile], %r1; bar.sync "
      "0;\n"
      " { .param .b32 x; .param .b32 y; st.param.b32 [x], %r1; call.uni (y), f, (x); ld.param.b32 %r2, "
      "[y]; }\n"
      " shfl.sync.bfly.b32 %r3, %r2, 16, 31, -1; atom.shared.add.u32 %r3, [tile+4], 1; ret; }\n";
  for (const char* const target : {"ptx", "kernel_text"}) {
    write(target, "add", add);
    write(target, "shared", shared);
  }
  const std::string checked(1, '\x1e'), next_source(1, '\x1e');
  write("ptx", "checked",
        checked + head +
            ".shared .align 4 .b8 tile[128];\n.visible .entry k(.param .u64 p) { .reg .b32 %r<4>; .reg .b64 "
            "%d<2>;\n"
            " ld.param.u64 %d1, [p]; mov.u32 %r1, %tid.x; st.shared.u32 [tile], %r1; bar.sync 0;\n"
            " ld.shared.u32 %r2, [tile]; atom.global.add.u32 %r3, [%d1], %r2; ret; }\n");
  write("ptx", "two-sources",
        head +
            ".extern .func (.param .b32 r) twice(.param .b32 a);\n.extern .global .b32 start;\n"
            ".global .u64 table[2] = {start, generic(start)};\n"
            ".visible .entry k() { .reg .b32 %r<3>; .reg .b64 %d<2>; ld.global.u32 %r1, [start];\n"
            " { .param .b32 x; .param .b32 y; st.param.b32 [x], %r1; call.uni (y), twice, (x); ld.param.b32 "
            "%r2, [y]; }\n"
            " mov.u64 %d1, table; st.global.u32 [%d1], %r2; ret; }\n" +
            next_source + head +
            ".visible .global .align 4 .b32 start = 21;\n.weak .global .f32 weak[4] = {1.0, 2};\n"
            ".visible .func (.param .b32 r) twice(.param .b32 a) { .reg .b32 %r<3>; ld.param.b32 %r1, [a]; "
            "shl.b32 %r2, %r1, 1; st.param.b32 [r], %r2; ret; }\n");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: fuzz_seeds FOLDER\n", stderr);
    return 2;
  }
  fuzz::seeds::root = argv[1];
  worker_sessions();
  decoded_replies();
  connections();
  rings();
  texts();
  images();
  fuzz::seeds::session_images();
  fuzz::seeds::session_transfers();
  fuzz::seeds::link_states();
  fuzz::seeds::library_operations();
  turns();
  ptx();
  return 0;
}
