#include <initializer_list>
#include <string>

#include "libraries/operations/all.h"
#include "libraries/operations/operation.h"

namespace gpupool::operations {
namespace {

/// One thread of each block calls the engine's function until the block has no more parts.
void add_entry(std::string& text, const char* name, std::size_t bytes) {
  text += std::string("\n.visible .entry ") + name + "(.param .align 8 .b8 operation[" +
          std::to_string(bytes) + R"(])
.maxntid 1, 1, 1
{
  .reg .b32 %more;
  .reg .b64 %round;
  .reg .pred %again;
  mov.b64 %round, 0;
next:
  {
    .param .b64 round;
    .param .b32 more;
    st.param.b64 [round], %round;
    call.uni (more), gpupool_operation, (round);
    ld.param.b32 %more, [more];
  }
  add.s64 %round, %round, 1;
  setp.ne.s32 %again, %more, 0;
  @%again bra next;
  ret;
}
)";
}

template <Operation... O>
std::string made(All<O...>) {
  // The software GPU has the function built in. On another device a kernel that calls it ends with a trap:
  // there a worker gives operations to NVIDIA's libraries in place of launching them.
  std::string text = R"(.version 8.0
.target sm_50
.address_size 64
.weak .func (.param .b32 more) gpupool_operation(.param .b64 round)
{
  trap;
  ret;
}
)";
  (add_entry(text, O::name, sizeof(O)), ...);
  return text;
}

}  // namespace

const std::string& image() {
  static const std::string* const text = new std::string(made(all_operations));
  return *text;
}

}  // namespace gpupool::operations
