#include "worker/libraries/kernels/dropout_kernel.h"

#include <string_view>

namespace gpupool::worker {
namespace {

using operations::Element;

static_assert(offsetof(DropoutLaunch, dims) == 64 && offsetof(DropoutLaunch, masking) == 68 &&
              offsetof(DropoutLaunch, sizes) == 72 && offsetof(DropoutLaunch, from_strides) == 136 &&
              offsetof(DropoutLaunch, into_strides) == 200 && sizeof(DropoutLaunch) == 264);
static_assert(offsetof(operations::DropoutStates, position) == 8 && sizeof(operations::DropoutStates) == 24);

/// How a kernel reads an element at %from into %value, and writes %value to %into.
struct Format {
  Element type;
  const char *name, *bytes, *read, *write;
};

constexpr Format formats[] = {
    {Element::f32, "dropout_f32", "4", R"(
  ld.global.f32 %single, [%from];
  cvt.f64.f32 %value, %single;
)",
     R"(
  cvt.rn.f32.f64 %single, %value;
  st.global.f32 [%into], %single;
)"},
    {Element::f64, "dropout_f64", "8", R"(
  ld.global.f64 %value, [%from];
)",
     R"(
  st.global.f64 [%into], %value;
)"},
    {Element::f16, "dropout_f16", "2", R"(
  ld.global.b16 %half, [%from];
  cvt.f32.f16 %single, %half;
  cvt.f64.f32 %value, %single;
)",
     R"(
  cvt.rn.f32.f64 %single, %value;
  cvt.rn.f16.f32 %half, %single;
  st.global.b16 [%into], %half;
)"},
    // Devices before compute capability 8.0 have no conversion to bf16: to the nearest, of two the even one.
    {Element::bf16, "dropout_bf16", "2", R"(
  ld.global.u16 %word, [%from];
  shl.b32 %word, %word, 16;
  mov.b32 %single, %word;
  cvt.f64.f32 %value, %single;
)",
     R"(
  cvt.rn.f32.f64 %single, %value;
  mov.b32 %word, %single;
  shr.u32 %bit, %word, 16;
  and.b32 %bit, %bit, 1;
  add.u32 %word, %word, %bit;
  add.u32 %word, %word, 32767;
  shr.u32 %word, %word, 16;
  setp.nan.f32 %yes, %single, %single;
  selp.b32 %word, 32767, %word, %yes;
  st.global.u16 [%into], %word;
)"},
};

constexpr const char* registers = R"(
  .reg .pred %yes;
  .reg .b16 %half;
  .reg .b32 %a, %b, %c, %d, %low_0, %low_1, %high_0, %high_1, %key_0, %key_1, %seed_0, %seed_1, %round;
  .reg .b32 %word, %lane, %bits, %bit, %masking, %i, %n, %dims;
  .reg .b64 %byte, %at, %count, %mask, %states, %position, %number, %four, %left_out, %wide;
  .reg .b64 %from, %into, %rest, %digit, %size;
  .reg .f32 %single;
  .reg .f64 %value, %kept;
)";

/// %at: the thread's first element; %n: how many it has; %mask: its byte.
constexpr const char* beginning = R"(
  mov.u32 %a, %ctaid.x;
  mov.u32 %b, %ntid.x;
  mul.wide.u32 %byte, %a, %b;
  mov.u32 %a, %tid.x;
  cvt.u64.u32 %wide, %a;
  add.u64 %byte, %byte, %wide;
  shl.b64 %at, %byte, 3;
  ld.param.u64 %count, [launch+40];
  setp.ge.u64 %yes, %at, %count;
  @%yes bra done;
  sub.u64 %count, %count, %at;
  min.u64 %count, %count, 8;
  cvt.u32.u64 %n, %count;
  ld.param.u64 %mask, [launch+16];
  cvta.to.global.u64 %mask, %mask;
  add.u64 %mask, %mask, %byte;
  ld.param.u32 %masking, [launch+68];
  setp.eq.u32 %yes, %masking, 0;
  @%yes bra read_mask;
  mov.u32 %bits, 1;
  shl.b32 %bits, %bits, %n;
  sub.u32 %bits, %bits, 1;
  setp.eq.u32 %yes, %masking, 1;
  @%yes bra write_mask;
)";

/// %bits by Philox 4x32-10, of which four elements have one block: operations/random.h says it in C++.
constexpr const char* draw = R"(
  ld.param.u64 %states, [launch+24];
  cvta.to.global.u64 %states, %states;
  ld.global.u32 %seed_0, [%states];
  ld.global.u32 %seed_1, [%states+4];
  ld.global.u64 %position, [%states+8];
  shr.u64 %position, %position, 2;
  ld.param.u64 %number, [launch+32];
  add.u64 %number, %number, %at;
  ld.param.u64 %left_out, [launch+48];
  mov.u32 %bits, 0;
  mov.u32 %i, 0;
next_number:
  cvt.u32.u64 %lane, %number;
  and.b32 %lane, %lane, 3;
  min.u32 %word, %lane, %i;
  setp.ne.u32 %yes, %word, 0;
  @%yes bra has_block;
  shr.u64 %four, %number, 2;
  add.u64 %four, %four, %position;
  cvt.u32.u64 %c, %four;
  and.b32 %c, %c, 65535;
  shr.u64 %four, %four, 16;
  cvt.u32.u64 %a, %four;
  shr.u64 %four, %four, 32;
  cvt.u32.u64 %b, %four;
  mov.u32 %d, 0;
  mov.u32 %key_0, %seed_0;
  mov.u32 %key_1, %seed_1;
  mov.u32 %round, 0;
next_round:
  mul.lo.u32 %low_0, %a, 0xD2511F53;
  mul.hi.u32 %high_0, %a, 0xD2511F53;
  mul.lo.u32 %low_1, %c, 0xCD9E8D57;
  mul.hi.u32 %high_1, %c, 0xCD9E8D57;
  xor.b32 %a, %high_1, %b;
  xor.b32 %a, %a, %key_0;
  mov.u32 %b, %low_1;
  xor.b32 %c, %high_0, %d;
  xor.b32 %c, %c, %key_1;
  mov.u32 %d, %low_0;
  add.u32 %key_0, %key_0, 0x9E3779B9;
  add.u32 %key_1, %key_1, 0xBB67AE85;
  add.u32 %round, %round, 1;
  setp.lt.u32 %yes, %round, 10;
  @%yes bra next_round;
has_block:
  mov.u32 %word, %a;
  setp.eq.u32 %yes, %lane, 1;
  @%yes mov.u32 %word, %b;
  setp.eq.u32 %yes, %lane, 2;
  @%yes mov.u32 %word, %c;
  setp.eq.u32 %yes, %lane, 3;
  @%yes mov.u32 %word, %d;
  cvt.u64.u32 %wide, %word;
  setp.ge.u64 %yes, %wide, %left_out;
  selp.u32 %bit, 1, 0, %yes;
  shl.b32 %bit, %bit, %i;
  or.b32 %bits, %bits, %bit;
  add.u64 %number, %number, 1;
  add.u32 %i, %i, 1;
  setp.lt.u32 %yes, %i, %n;
  @%yes bra next_number;
write_mask:
  st.global.u8 [%mask], %bits;
  bra elements;
read_mask:
  ld.global.u8 %bits, [%mask];
elements:
  ld.param.u32 %dims, [launch+64];
  ld.param.f64 %kept, [launch+56];
  mov.u32 %i, 0;
next_element:
  cvt.u64.u32 %rest, %i;
  add.u64 %rest, %rest, %at;
  mov.u64 %from, 0;
  mov.u64 %into, 0;
)";

/// What a dimension adds to where the element lies.
std::string add_digit(const char* digit, int dimension) {
  const auto parameter = [&](int first) {
    return "[launch+" + std::to_string(first + 8 * dimension) + "];\n";
  };
  std::string text;
  for (const auto& [strides, offset] : {std::pair{136, "%from"}, {200, "%into"}}) {
    text += "  ld.param.u64 %size, " + parameter(strides);
    text += std::string("  mad.lo.u64 ") + offset + ", " + digit + ", %size, " + offset + ";\n";
  }
  return text;
}

/// From the number of an element to where it lies: the last dimension first.
std::string places() {
  std::string text;
  for (int dimension = DropoutLaunch::max_dims - 1; dimension > 0; --dimension) {
    const std::string number = std::to_string(dimension);
    text += "  setp.le.u32 %yes, %dims, " + number + ";\n  @%yes bra without_" + number + ";\n";
    text += "  ld.param.u64 %size, [launch+" + std::to_string(72 + 8 * dimension) + "];\n";
    text += "  rem.u64 %digit, %rest, %size;\n  div.u64 %rest, %rest, %size;\n";
    text += add_digit("%digit", dimension) + "without_" + number + ":\n";
  }
  return text + add_digit("%rest", 0);
}

void add_kernel(std::string& text, const Format& format) {
  text += std::string("\n.visible .entry ") + format.name + "(.param .align 8 .b8 launch[" +
          std::to_string(sizeof(DropoutLaunch)) + "])\n{";
  text += registers;
  text += beginning;
  text += draw;
  text += places();
  for (const auto& [offset, parameter] : {std::pair{"%from", "0"}, {"%into", "8"}}) {
    text += std::string("  ld.param.u64 %size, [launch+") + parameter + "];\n" +
            "  cvta.to.global.u64 %size, %size;\n  mad.lo.u64 " + offset + ", " + offset + ", " +
            format.bytes + ", %size;\n";
  }
  text += R"(
  mov.f64 %value, 0d0000000000000000;
  shr.u32 %bit, %bits, %i;
  and.b32 %bit, %bit, 1;
  setp.eq.u32 %yes, %bit, 0;
  @%yes bra write;
)";
  text += format.read;
  text += "  div.rn.f64 %value, %value, %kept;\nwrite:\n";
  text += format.write;
  text += R"(
  add.u32 %i, %i, 1;
  setp.lt.u32 %yes, %i, %n;
  @%yes bra next_element;
done:
  ret;
}
)";
}

/// Numbers of a sequence come in fours: what follows begins with the next ones.
constexpr const char* states_kernel = R"(
.visible .entry dropout_states(.param .align 8 .b8 launch[24])
{
  .reg .pred %yes;
  .reg .b32 %a, %b;
  .reg .b64 %states, %seed, %drawn, %position;

  mov.u32 %a, %ctaid.x;
  mov.u32 %b, %tid.x;
  or.b32 %a, %a, %b;
  setp.ne.u32 %yes, %a, 0;
  @%yes bra done;
  ld.param.u64 %states, [launch];
  cvta.to.global.u64 %states, %states;
  ld.param.u64 %drawn, [launch+16];
  setp.ne.u64 %yes, %drawn, 0;
  @%yes bra move_on;
  ld.param.u64 %seed, [launch+8];
  mov.u64 %position, 0;
  st.global.u64 [%states], %seed;
  st.global.u64 [%states+8], %position;
  st.global.u64 [%states+16], %position;
  bra done;
move_on:
  add.u64 %drawn, %drawn, 3;
  and.b64 %drawn, %drawn, 0xFFFFFFFFFFFFFFFC;
  ld.global.u64 %position, [%states+8];
  add.u64 %position, %position, %drawn;
  st.global.u64 [%states+8], %position;
done:
  ret;
}
)";

std::string made() {
  std::string text = ".version 6.0\n.target sm_50\n.address_size 64\n";
  for (const Format& format : formats) add_kernel(text, format);
  return text + states_kernel;
}

}  // namespace

const std::string& dropout_text() {
  static const std::string* const text = new std::string(made());
  return *text;
}

const char* dropout_kernel(Element type) {
  for (const Format& format : formats) {
    if (format.type == type) return format.name;
  }
  return nullptr;
}

}  // namespace gpupool::worker
