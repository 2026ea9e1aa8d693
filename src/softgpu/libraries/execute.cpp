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

/// Whether it was this one; then the part has been done.
template <class O>
bool done(const softgpu::OperationPart& part, const Memory& memory, bool& more) {
  if (part.name != O::name) return false;
  if (part.parameters.size() != sizeof(O)) {
    throw Failure(softgpu::Fault::illegal_instruction,
                  "operation " + std::string(part.name) +
                      " of another version of the libraries: " + std::to_string(part.parameters.size()) +
                      " bytes in place of " + std::to_string(sizeof(O)));
  }
  O operation;
  std::memcpy(static_cast<void*>(&operation), part.parameters.data(), sizeof(O));
  if constexpr (requires { operation.sound(); }) {
    if (!operation.sound()) {
      throw Failure(softgpu::Fault::illegal_instruction, std::string(part.name) + ": sizes that nothing has");
    }
  }
  const auto own = part.block + static_cast<unsigned __int128>(part.round) * part.blocks;
  const std::uint64_t parts = operation.parts();
  // The first part is done in any case: it finds what is wrong with an operation that has none.
  if (own < parts || own == 0) run(operation, Parts{static_cast<std::uint64_t>(own)}, memory);
  more = own + part.blocks < parts;
  return true;
}

template <class... O>
bool done_by_any(All<O...>, const softgpu::OperationPart& part, const Memory& memory, bool& more) {
  return (done<O>(part, memory, more) || ...);
}

}  // namespace

softgpu::OperationEnd execute(const softgpu::OperationPart& part, const Memory& memory) {
  try {
    softgpu::OperationEnd end;
    if (done_by_any(gpupool::operations::all_operations, part, memory, end.more)) return end;
    return {softgpu::Fault::illegal_instruction, "no operation is called " + std::string(part.name), false};
  } catch (const Failure& failure) {
    return {failure.fault(), failure.what(), false};
  } catch (const std::bad_alloc&) {
    return {softgpu::Fault::launch_out_of_resources, "out of host memory for an operation", false};
  } catch (const std::exception& error) {
    return {softgpu::Fault::illegal_instruction, error.what(), false};
  }
}

}  // namespace softgpu::libraries
