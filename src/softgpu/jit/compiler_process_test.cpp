// LLVM works in a process of its own, and whatever becomes of that one, the program goes on.
#include "softgpu/jit/compiler_process.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <string>

#include "doctest/doctest.h"
#include "softgpu/exec/program/instruction_set.h"
#include "softgpu/jit/compiler_protocol.h"

using softgpu::jit::CompilerProcess;

namespace {

constexpr const char* answer_text = "define i32 @answer() {\n  ret i32 42\n}\n";

// An environment variable that has another value meanwhile.
class Setting {
 public:
  Setting(const char* variable, const char* value) : variable_(variable) {
    const char* const named = std::getenv(variable_);
    before_ = named == nullptr ? "" : named;
    setenv(variable_, value, 1);
  }
  ~Setting() { before_.empty() ? unsetenv(variable_) : setenv(variable_, before_.c_str(), 1); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* variable_;
  std::string before_;
};

// A program that takes care of all that lost its parent, as the first process of a container does.
class Adopting {
 public:
  Adopting() { REQUIRE(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0); }
  ~Adopting() { prctl(PR_SET_CHILD_SUBREAPER, 0); }
  Adopting(const Adopting&) = delete;
  Adopting& operator=(const Adopting&) = delete;
};

volatile std::sig_atomic_t ended_children = 0;

bool has_llvm(CompilerProcess& compiler) {
  std::string problem;
  if (!compiler.identity(problem).empty()) return true;
  MESSAGE("not tested: " << problem);
  return false;
}

}  // namespace

TEST_CASE("text comes back as an object, and nonsense as a sentence") {
  CompilerProcess compiler;
  if (!has_llvm(compiler)) return;
  std::string error;
  CHECK_FALSE(compiler.compile("this is no function", error));
  CHECK(error.find("expected top-level entity") != std::string::npos);
  const auto object = compiler.compile(answer_text, error);
  REQUIRE(object);
  CHECK(std::string(reinterpret_cast<const char*>(object->data()), 4) == "\177ELF");
}

TEST_CASE("a program that waits for whatever child ends does not meet the compiler") {
  ended_children = 0;
  struct sigaction count{}, before{};
  count.sa_handler = [](int) { ended_children = ended_children + 1; };
  REQUIRE(sigaction(SIGCHLD, &count, &before) == 0);
  {
    CompilerProcess compiler;
    if (has_llvm(compiler)) {
      std::string error;
      CHECK(compiler.compile(answer_text, error));
      CHECK(waitpid(-1, nullptr, WNOHANG) == -1);
      CHECK(errno == ECHILD);
      const pid_t first = compiler.process();
      REQUIRE(kill(first, SIGKILL) == 0);
      CHECK_FALSE(compiler.compile(answer_text, error));
    }
  }
  sigaction(SIGCHLD, &before, nullptr);
  CHECK(ended_children == 0);
}

TEST_CASE("a compiler that dies costs one kernel, and the next one has a new compiler") {
  CompilerProcess compiler;
  if (!has_llvm(compiler)) return;
  const pid_t first = compiler.process();
  REQUIRE(first > 0);
  REQUIRE(kill(first, SIGKILL) == 0);
  std::string error;
  CHECK_FALSE(compiler.compile(answer_text, error));
  CHECK(error.find("LLVM ended over it") != std::string::npos);
  CHECK(compiler.compile(answer_text, error));
  CHECK(compiler.process() != first);
}

TEST_CASE("a compiler that had nothing to do ends by itself, and the next kernel does not notice") {
  const Adopting adopting;
  setenv("GPUPOOL_SOFTGPU_JIT_IDLE_SECONDS", "1", 1);
  CompilerProcess compiler;
  const bool there = has_llvm(compiler);
  unsetenv("GPUPOOL_SOFTGPU_JIT_IDLE_SECONDS");
  if (!there) return;
  const pid_t first = compiler.process();
  siginfo_t ended{};
  REQUIRE(waitid(P_PID, static_cast<id_t>(first), &ended, WEXITED | WNOWAIT) == 0);
  CHECK(ended.si_code == CLD_EXITED);
  std::string error;
  CHECK(compiler.compile(answer_text, error));
  CHECK(error.empty());
  CHECK(compiler.process() != first);
}

TEST_CASE("without a compiler there is a reason, and nothing is tried again") {
  for (const char* program : {"/no/such/program", "/bin/false"}) {
    const Setting place("GPUPOOL_SOFTGPU_JIT_COMPILER", program);
    CompilerProcess compiler;
    std::string problem, again;
    CHECK(compiler.identity(problem).empty());
    CHECK_FALSE(problem.empty());
    CHECK_FALSE(compiler.compile(answer_text, again));
    CHECK(again == problem);
  }
}

TEST_CASE("it is gone when nobody needs it any more") {
  const Adopting adopting;
  pid_t process = -1;
  {
    CompilerProcess compiler;
    if (!has_llvm(compiler)) return;
    process = compiler.process();
    REQUIRE(process > 0);
    compiler.abandon();
    std::string error;
    CHECK_FALSE(compiler.compile(answer_text, error));
  }
  CHECK(kill(process, 0) == -1);
}

TEST_CASE("a killed program's compiler ends, also in the middle of a large kernel") {
  {
    CompilerProcess compiler;
    if (!has_llvm(compiler)) return;
  }
  // Each line depends on the two before, so that nothing can be left out: minutes of work.
  std::string large = "define i64 @large(i64 %v0, i64 %v1) {\n";
  for (int n = 2; n < 400'000; ++n) {
    const auto value = [](int k) { return "%v" + std::to_string(k); };
    large += "  " + value(n) + (n % 3 == 0 ? " = mul i64 " : " = xor i64 ") + value(n - 1) + ", " +
             value(n - 2) + "\n";
  }
  large += "  ret i64 %v399999\n}\n";
  const Adopting adopting;
  int told[2];
  REQUIRE(pipe(told) == 0);
  const pid_t program = fork();
  if (program == 0) {
    CompilerProcess compiler;
    std::string problem;
    static_cast<void>(compiler.identity(problem));
    const pid_t process = compiler.process();
    static_cast<void>(!write(told[1], &process, sizeof process));
    static_cast<void>(compiler.compile(large, problem));
    _exit(0);
  }
  pid_t process = -1;
  REQUIRE(read(told[0], &process, sizeof process) == static_cast<ssize_t>(sizeof process));
  close(told[0]);
  close(told[1]);
  // It works when it has used more of a processor than its start took.
  const auto used = [&] {
    clockid_t clock{};
    timespec now{};
    if (clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &now) != 0) return -1.0;
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
  };
  const double before = used();
  while (used() >= 0 && used() < before + 0.3) usleep(10'000);
  REQUIRE(kill(program, SIGKILL) == 0);
  int status = 0;
  CHECK(waitpid(program, &status, 0) == program);
  CHECK(waitpid(process, &status, 0) == process);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == softgpu::jit::exit_without_program));
}

TEST_CASE("machine code has the instructions that the interpreter was told to use") {
  constexpr const char* sum_text =
      "define <8 x float> @sum(<8 x float> %a, <8 x float> %b) {\n  %c = fadd <8 x float> %a, %b\n"
      "  ret <8 x float> %c\n}\n";
  const auto code_for = [&](const char* instructions) {
    const Setting setting("GPUPOOL_SOFTGPU_ISA", instructions);
    CompilerProcess compiler;
    if (!has_llvm(compiler)) return std::string();
    std::string error;
    const auto object = compiler.compile(sum_text, error);
    REQUIRE(object);
    return std::string(reinterpret_cast<const char*>(object->data()), object->size());
  };
  const std::string without = code_for("baseline"), with = code_for("avx2");
  if (without.empty()) return;
  const std::string two_halves("\x0f\x58\xc2\x0f\x58\xcb", 6);  // addps xmm0, xmm2; addps xmm1, xmm3
  const std::string whole("\xc5\xfc\x58\xc1", 4);               // vaddps ymm0, ymm0, ymm1
  CHECK(without.find(two_halves) != std::string::npos);
  CHECK(without.find(whole) == std::string::npos);
  if (softgpu::instruction_sets().back() != "baseline") CHECK(with.find(whole) != std::string::npos);
}
