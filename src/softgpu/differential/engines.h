// Who executes a program: the reference, and what is compared with it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "softgpu/differential/program.h"

namespace softgpu::differential {

struct Outcome {
  std::string error;              // empty: it ran to its end
  std::vector<std::byte> memory;  // the arena afterwards
};

// Global memory at one address for all engines, so that addresses are the same numbers in all of them.
class Arena {
 public:
  Arena();
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  [[nodiscard]] std::span<std::byte> bytes() const { return {begin_, layout::total_bytes}; }

 private:
  std::byte* begin_;
};

class Engine {
 public:
  explicit Engine(std::string name) : name_(std::move(name)) {}
  virtual ~Engine() = default;
  [[nodiscard]] const std::string& name() const { return name_; }
  // The arena holds the initial memory when it is called.
  virtual std::string run(const Program& program, const std::string& text, std::span<std::byte> arena) = 0;

 private:
  std::string name_;
};

[[nodiscard]] std::unique_ptr<Engine> reference_engine();
// Tier 0 with each instruction set that this processor has.
[[nodiscard]] std::vector<std::unique_ptr<Engine>> tier_0_engines();

// Tier 1: LLVM as programs have it, or in a hurry, so that many programs can be tried; `in_parts` also leaves
// out what a launch with other data has not reached.
enum class Tier1Form : uint8_t { usual, quick, quick_in_parts };
inline constexpr size_t tier_1_forms = 3;
class Tier1 : public Engine {
 public:
  using Engine::Engine;
  // Programs that it was given, and those of them that ran as machine code from the first instruction on.
  [[nodiscard]] virtual uint64_t given() const = 0;
  [[nodiscard]] virtual uint64_t compiled() const = 0;
};
// Null, with the reason in `problem`, without LLVM.
[[nodiscard]] std::unique_ptr<Tier1> tier_1_engine(Tier1Form form, std::string& problem);

[[nodiscard]] Outcome outcome_of(Engine& engine, const Program& program, const std::string& text,
                                 const std::vector<std::byte>& initial, const Arena& arena);

// What differs, in one line; nothing if the outcomes agree as far as PTX defines them.
[[nodiscard]] std::optional<std::string> difference(const Program& program, const Outcome& expected,
                                                    const Outcome& got);

}  // namespace softgpu::differential
