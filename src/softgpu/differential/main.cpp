// softgpu_fuzz: random PTX programs on the software GPU and on the reference.
//   softgpu_fuzz [--programs N] [--seconds N] [--first SEED] [--findings N] [--print SEED] [--small] [--list]
// Exit status 1 when a program differs; each is printed with its seed, shrunk.
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
  bool list = false;
  Generator::Size size = Generator::Size::usual;
};

std::optional<Options> read_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--list") {
      options.list = true;
      continue;
    }
    if (name == "--small") {
      options.size = Generator::Size::small;
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
  Fuzzer() : reference_(reference_engine()), engines_(engines_under_test()) {}

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
    for (const auto& engine : engines_) {
      const Outcome got = outcome_of(*engine, program, text, initial, arena_);
      const auto what = difference(program, expected, got);
      if (!what) continue;
      ++findings_;
      report(program, *engine, *what, initial);
    }
  }

 private:
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
  std::vector<std::unique_ptr<Engine>> engines_;
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
    std::fputs(Generator(fuzzer.catalogue(), *options.print, options.size).make().text().c_str(), stdout);
    return 0;
  }
  const auto begin = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  uint64_t done = 0;
  for (; done < options.programs && fuzzer.findings() < options.findings; ++done) {
    if (options.seconds != 0 && seconds() > static_cast<double>(options.seconds)) break;
    fuzzer.try_seed(options.first + done, options.size);
  }
  std::printf(
      "%llu programs from seed %llu, %.0f a second, %zu opcodes compared and %zu not, %llu findings\n",
      static_cast<unsigned long long>(done), static_cast<unsigned long long>(options.first),
      static_cast<double>(done) / seconds(), fuzzer.catalogue().compared(),
      fuzzer.catalogue().not_compared().size(), static_cast<unsigned long long>(fuzzer.findings()));
  return fuzzer.findings() + fuzzer.catalogue().contradictions().size() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace softgpu::differential

int main(int argc, char** argv) {
  const auto options = softgpu::differential::read_options(argc, argv);
  if (!options) {
    std::fputs(
        "softgpu_fuzz [--programs N] [--seconds N] [--first SEED] [--findings N] [--print SEED] [--small] "
        "[--list]\n",
        stderr);
    return 2;
  }
  // Programs run once or twice: tier 1 takes part only where it is asked for.
  setenv("GPUPOOL_SOFTGPU_JIT", "off", 0);
  return softgpu::differential::run(*options);
}
