// Descriptors of graphs (cudnnBackend…): a store of attributes by number, and what finalising makes of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "libraries/cudnn/backend_numbers.h"
#include "libraries/cudnn/status.h"
#include "libraries/operations/convolution.h"

namespace gpupool::cudnn {

struct Content;
struct AttentionProgram;

/// One attribute: `count` elements of a type, or descriptors as they were when they were set.
struct Attribute {
  int type = 0;
  std::int64_t count = 0;
  std::vector<std::byte> bytes;
  std::vector<std::shared_ptr<const Content>> descriptors;
};

/// What a graph computes: an operation without addresses, and whose tensors go where.
struct Program {
  operations::Convolution convolution;
  std::int64_t input = 0, filter = 0, output = 0;  // unique numbers of tensors
  std::optional<std::int64_t> added, bias;
  std::shared_ptr<const AttentionProgram> attention;  // in place of all these

  /// Of single precision, tensor cores take fewer digits: the first engine may use them and says so, the
  /// second one does not.
  [[nodiscard]] std::int64_t engines() const {
    return !attention && convolution.input.type == operations::Element::f32 ? 2 : 1;
  }
  [[nodiscard]] bool takes_fewer_digits(std::int64_t engine) const { return engine + 1 < engines(); }
};

/// What a descriptor holds. It does not change any more once it is finalised, so others may share it.
struct Content {
  int kind = 0;
  bool finalized = false;
  std::map<int, Attribute> attributes;
  std::shared_ptr<const Program> program;  // of a finalised graph

  [[nodiscard]] const Attribute* find(int name) const {
    const auto found = attributes.find(name);
    return found != attributes.end() && found->second.count > 0 ? &found->second : nullptr;
  }
  /// The elements of an attribute; none: it was not set.
  template <class T>
  [[nodiscard]] std::vector<T> list(int name) const {
    const Attribute* const found = find(name);
    if (found == nullptr) return {};
    std::vector<T> made(found->bytes.size() / sizeof(T));
    std::memcpy(made.data(), found->bytes.data(), made.size() * sizeof(T));
    return made;
  }
  template <class T>
  [[nodiscard]] T one(int name, T otherwise) const {
    const std::vector<T> all = list<T>(name);
    return all.empty() ? otherwise : all.front();
  }
  /// A factor, which is a float or a double.
  [[nodiscard]] double real(int name, double otherwise) const {
    const Attribute* const found = find(name);
    if (found == nullptr) return otherwise;
    return found->type == type_double ? one<double>(name, otherwise)
                                      : static_cast<double>(one<float>(name, 0));
  }
  [[nodiscard]] const Content* child(int name) const {
    const Attribute* const found = find(name);
    return found == nullptr || found->descriptors.empty() ? nullptr : found->descriptors.front().get();
  }
};

/// What a cudnnBackendDescriptor_t points to.
struct Backend {
  static constexpr std::uint32_t mark = 0x6e74000a;

  std::uint32_t alive = mark;
  std::shared_ptr<Content> content;
};

inline Backend* find_backend(void* descriptor) {
  auto* const found = static_cast<Backend*>(descriptor);
  return found != nullptr && found->alive == Backend::mark ? found : nullptr;
}

/// Checks the attributes of a descriptor that is to be finalised, and makes the program of a graph.
int finalize(Content& content);

/// Why a graph is not carried: said once for each reason, and kept for cudnnGetLastErrorString.
int refuse_graph(int status, const Content& operation, const char* why);

/// The program of a graph's operations, or why there is none: then the status and, in last_error(), the
/// operation.
int program_of(const std::vector<std::shared_ptr<const Content>>& operations, Program& program);

}  // namespace gpupool::cudnn
