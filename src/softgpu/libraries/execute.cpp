#include "softgpu/libraries/execute.h"

#include <cstring>
#include <exception>
#include <new>
#include <string>

#include "libraries/operations/all.h"
#include "softgpu/libraries/operations.h"

namespace softgpu::libraries {
namespace {

using gpupool::operations::All;

/// Whether it was this one; then it has been done.
template <class O>
bool done(const softgpu::OperationPart& part, const Memory& memory) {
  if (part.name != O::name) return false;
  if (part.parameters.size() != sizeof(O)) {
    throw Failure(softgpu::Fault::illegal_instruction,
                  "operation " + std::string(part.name) +
                      " of another version of the libraries: " + std::to_string(part.parameters.size()) +
                      " bytes in place of " + std::to_string(sizeof(O)));
  }
  O operation;
  std::memcpy(static_cast<void*>(&operation), part.parameters.data(), sizeof(O));
  run(operation, Parts{part.block, part.blocks}, memory);
  return true;
}

template <class... O>
bool done_by_any(All<O...>, const softgpu::OperationPart& part, const Memory& memory) {
  return (done<O>(part, memory) || ...);
}

}  // namespace

softgpu::OperationEnd execute(const softgpu::OperationPart& part, const Memory& memory) {
  try {
    if (done_by_any(gpupool::operations::all_operations, part, memory)) return {};
    return {softgpu::Fault::illegal_instruction, "no operation is called " + std::string(part.name)};
  } catch (const Failure& failure) {
    return {failure.fault(), failure.what()};
  } catch (const std::bad_alloc&) {
    return {softgpu::Fault::launch_out_of_resources, "out of host memory for an operation"};
  } catch (const std::exception& error) {
    return {softgpu::Fault::illegal_instruction, error.what()};
  }
}

}  // namespace softgpu::libraries
