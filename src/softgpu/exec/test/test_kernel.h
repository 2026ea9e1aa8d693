// Small kernels for tests: the frame around their instructions, and what comes of running them.
#pragma once

#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "softgpu/exec/test/engine_test_support.h"

namespace softgpu::testing {

// A kernel with one pointer parameter, loaded into %out; %tid and %gid hold the thread's place.
inline std::string kernel(const std::string& body, const std::string& before = "") {
  return ptx_header + before +
         ".visible .entry k(.param .u64 p)\n{\n.reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<40>, %tid, "
         "%gid, %n; .reg .b64 %x<20>, %out, %slot;\n"
         ".reg .f32 %f<8>;\n"
         "ld.param.u64 %out, [p]; cvta.to.global.u64 %out, %out; mov.u32 %tid, %tid.x; mov.u32 %n, %ntid.x;\n"
         "mad.lo.s32 %gid, %ctaid.x, %n, %tid; mad.wide.u32 %slot, %gid, 4, %out;\n" +
         body + "\nret;\n}\n";
}

// What a kernel leaves at %out.
inline std::vector<uint32_t> run(const std::string& text, uint32_t grid, uint32_t block, size_t results,
                                 uint32_t dynamic = 0, bool cooperative = false) {
  Machine machine(text);
  INFO(machine.compiled.log);
  REQUIRE(machine.image != nullptr);
  const LaunchResult result =
      machine.run({grid, 1, 1}, {block, 1, 1}, Parameters().add(machine.address(0)), 0, dynamic, cooperative);
  INFO(result.detail);
  REQUIRE(result.fault == Fault::none);
  return {machine.at<uint32_t>(0), machine.at<uint32_t>(0) + results};
}

inline LaunchResult fault_of(const std::string& text, uint32_t grid = 1, uint32_t block = 32) {
  Machine machine(text);
  INFO(machine.compiled.log);
  REQUIRE(machine.image != nullptr);
  return machine.run({grid, 1, 1}, {block, 1, 1}, Parameters().add(machine.address(0)));
}

}  // namespace softgpu::testing
