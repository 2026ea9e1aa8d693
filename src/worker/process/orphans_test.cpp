#include "worker/process/orphans.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "doctest/doctest.h"

using namespace gpupool::worker;

TEST_CASE("a process that a child has left is ended with this one, and nothing of it stays") {
  adopt_orphans();
  int told[2];
  REQUIRE(pipe(told) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const pid_t left = fork();
    if (left == 0) {
      for (;;) pause();
    }
    _exit(write(told[1], &left, sizeof left) == sizeof left ? 0 : 1);
  }
  pid_t left = -1;
  REQUIRE(read(told[0], &left, sizeof left) == sizeof left);
  REQUIRE(waitpid(child, nullptr, 0) == child);
  close(told[0]);
  close(told[1]);
  CHECK(kill(left, 0) == 0);
  end_orphans();
  CHECK(kill(left, 0) == -1);
  CHECK(errno == ESRCH);
  end_orphans();  // there are none
  prctl(PR_SET_CHILD_SUBREAPER, 0);
}
