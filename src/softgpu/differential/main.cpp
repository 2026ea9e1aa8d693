// softgpu_fuzz: random PTX programs on the software GPU and on the reference.
//   softgpu_fuzz [--programs N] [--seconds N] [--first SEED] [--findings N] [--print SEED] [--small] [--list]
//                [--tier-1]
// Exit status 1 when a program differs; each is printed with its seed, shrunk. 77: there is no LLVM.
// --tier-1: tier 1 as well, where LLVM's time decides. So most programs are small and most are compiled in a
// hurry; one in a hundred is of the usual size, and one in twenty is compiled as programs are.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "softgpu/differential/engines.h"
#include "softgpu/differential/generator.h"
#include "softgpu/differential/shrink.h"

namespace softgpu::differential {
namespace {

struct Options {
  uint64_t programs = 1000, first = 1, seconds = 0, findings = 5;
  std::optional<uint64_t> print;
  bool list = false, tier_1 = false, small = false;

  // Depends on nothing but the seed and what was asked for, so that --first SEED --programs 1 repeats it.
  [[nodiscard]] Generator::Size size_of(uint64_t seed) const {
    const bool usual = tier_1 ? Random(seed ^ 0x517e).below(100) == 0 : !small;
    return usual ? Generator::Size::usual : Generator::Size::small;
  }
};
bool is_compiled_as_usual(uint64_t seed) {
  return Random(seed ^ 0xeff027).below(20) == 0;
}

std::optional<Options> read_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--list") {
      options.list = true;
      continue;
    }
    if (name == "--small") {
      options.small = true;
      continue;
    }
    if (name == "--tier-1") {
      options.tier_1 = true;
      continue;
    }
    char* end = nullptr;
    const uint64_t value = i + 1 < argc ? std::strtoull(argv[++i], &end, 10) : 0;
    if (end == nullptr || *end != '\0' || *argv[i] == '\0') return std::nullopt;
    if (name == "--programs") {
      options.programs = value;
    } else if (name == "--seconds") {
      options.seconds = value;
    } else if (name == "--first") {
      options.first = value;
    } else if (name == "--findings") {
      options.findings = value;
    } else if (name == "--print") {
      options.print = value;
    } else {
      return std::nullopt;
    }
  }
  return options;
}

class Fuzzer {
 public:
  Fuzzer() : reference_(reference_engine()), tier_0_(tier_0_engines()) {}
  // False, with the reason, without LLVM.
  bool add_tier_1(std::string& problem) {
    for (size_t form = 0; form < tier_1_forms; ++form) {
      tier_1_[form] = tier_1_engine(static_cast<Tier1Form>(form), problem);
      if (tier_1_[form] == nullptr) return false;
    }
    return true;
  }

  [[nodiscard]] const Catalogue& catalogue() const { return catalogue_; }
  [[nodiscard]] uint64_t findings() const { return findings_; }

  void try_seed(uint64_t seed, Generator::Size size) {
    const Program program = Generator(catalogue_, seed, size).make();
    const std::vector<std::byte> initial = initial_memory(seed);
    const std::string text = program.text();
    const Outcome expected = outcome_of(*reference_, program, text, initial, arena_);
    if (!expected.error.empty()) {
      std::printf("seed %llu: the reference refuses it: %s\n", static_cast<unsigned long long>(seed),
                  expected.error.c_str());
      ++findings_;
      return;
    }
    for (const auto& engine : tier_0_) compare(*engine, program, text, initial, expected);
    const Tier1Form form = is_compiled_as_usual(seed) ? Tier1Form::usual
                           : seed % 2 == 0            ? Tier1Form::quick
                                                      : Tier1Form::quick_in_parts;
    Tier1* const tier_1 = tier_1_[static_cast<size_t>(form)].get();
    if (tier_1 != nullptr) compare(*tier_1, program, text, initial, expected);
  }

  void print_tier_1() const {
    for (const auto& engine : tier_1_) {
      if (engine == nullptr) continue;
      std::printf("%s: %llu of %llu programs ran as machine code\n", engine->name().c_str(),
                  static_cast<unsigned long long>(engine->compiled()),
                  static_cast<unsigned long long>(engine->given()));
    }
  }

 private:
  void compare(Engine& engine, const Program& program, const std::string& text,
               const std::vector<std::byte>& initial, const Outcome& expected) {
    const Outcome got = outcome_of(engine, program, text, initial, arena_);
    const auto what = difference(program, expected, got);
    if (!what) return;
    ++findings_;
    report(program, engine, *what, initial);
  }
  void report(const Program& program, Engine& engine, const std::string& what,
              const std::vector<std::byte>& initial) {
    std::printf("seed %llu, %s: %s\n", static_cast<unsigned long long>(program.seed), engine.name().c_str(),
                what.c_str());
    std::string last = what;
    const std::vector<bool> kept = shrink(program, [&](const std::vector<bool>& candidate) {
      const std::string text = program.text(candidate);
      const Outcome expected = outcome_of(*reference_, program, text, initial, arena_);
      if (!expected.error.empty()) return false;
      const auto found = difference(program, expected, outcome_of(engine, program, text, initial, arena_));
      if (found) last = *found;
      return found.has_value();
    });
    std::printf("%s\n// grid %u, block %u x %u: %s\n\n", program.text(kept).c_str(), program.grid.x,
                program.block.x, program.block.y, last.c_str());
    std::fflush(stdout);
  }

  Catalogue catalogue_;
  std::unique_ptr<Engine> reference_;
  std::vector<std::unique_ptr<Engine>> tier_0_;
  std::unique_ptr<Tier1> tier_1_[tier_1_forms];
  Arena arena_;
  uint64_t findings_ = 0;
};

void list(const Catalogue& catalogue) {
  std::map<std::string, std::pair<size_t, std::string>> by_base;
  for (const std::string& name : catalogue.not_compared()) {
    auto& [count, example] = by_base[name.substr(0, name.find('.'))];
    if (count++ == 0) example = name;
  }
  std::printf("%zu opcodes are compared, %zu are not:\n", catalogue.compared(),
              catalogue.not_compared().size());
  for (const auto& [base, forms] : by_base) {
    std::printf("  %-16s %4zu forms, %s\n", base.c_str(), forms.first, forms.second.c_str());
  }
}

int run(const Options& options) {
  using Clock = std::chrono::steady_clock;
  Fuzzer fuzzer;
  for (const std::string& contradiction : fuzzer.catalogue().contradictions()) {
    std::printf("table and reference disagree about the operands of %s\n", contradiction.c_str());
  }
  if (options.list) {
    list(fuzzer.catalogue());
    return 0;
  }
  if (options.print) {
    std::fputs(
        Generator(fuzzer.catalogue(), *options.print, options.size_of(*options.print)).make().text().c_str(),
        stdout);
    return 0;
  }
  std::string problem;
  if (options.tier_1 && !fuzzer.add_tier_1(problem)) {
    std::fprintf(stderr, "softgpu_fuzz: no tier 1: %s\n", problem.c_str());
    return 77;  // as test runners say "skipped"
  }
  const auto begin = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  uint64_t done = 0;
  for (; done < options.programs && fuzzer.findings() < options.findings; ++done) {
    if (options.seconds != 0 && seconds() > static_cast<double>(options.seconds)) break;
    fuzzer.try_seed(options.first + done, options.size_of(options.first + done));
  }
  std::printf(
      "%llu programs from seed %llu, %.0f a second, %zu opcodes compared and %zu not, %llu findings\n",
      static_cast<unsigned long long>(done), static_cast<unsigned long long>(options.first),
      static_cast<double>(done) / seconds(), fuzzer.catalogue().compared(),
      fuzzer.catalogue().not_compared().size(), static_cast<unsigned long long>(fuzzer.findings()));
  fuzzer.print_tier_1();
  return fuzzer.findings() + fuzzer.catalogue().contradictions().size() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace softgpu::differential

int main(int argc, char** argv) {
  const auto options = softgpu::differential::read_options(argc, argv);
  if (!options) {
    std::fputs(
        "softgpu_fuzz [--programs N] [--seconds N] [--first SEED] [--findings N] [--print SEED] [--small] "
        "[--list] [--tier-1]\n",
        stderr);
    return 2;
  }
  return softgpu::differential::run(*options);
}
