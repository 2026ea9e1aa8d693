#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>

#include "base/sha256.h"
#include "image/test_cubin.h"
#include "image/test_fatbin.h"
#include "softgpu/packs/library_images.h"
#include "softgpu/packs/pack_folder.h"
#include "softgpu/packs/stand_in.h"
#include "softgpu/packs/write_kernels.h"

using namespace softgpu::packs;
using namespace gpupool::image;
namespace fs = std::filesystem;

namespace {

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "packs-test-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  [[nodiscard]] std::string file(const std::string& name) const { return (path_ / name).string(); }
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

void write(const std::string& path, const std::string& bytes) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string frame(const std::string& names, const std::string& text) {
  return std::to_string(text.size()) + ' ' + names + '\n' + text;
}

std::string hex_digest(const std::string& bytes) {
  return gpupool::hex(gpupool::sha256(view(bytes)));
}

std::string written(const Folder& folder, const std::string& frames) {
  std::istringstream input(frames);
  const std::string path = folder.file("a.kernels");
  REQUIRE_EQ(write_kernels(input, path), "");
  return path;
}

// What nvcc leaves of a file without PTX. The payload is as long as its padding, so that its digest is the
// entry's.
std::string machine_code() {
  std::string code = TestCubin::make();
  code.resize((code.size() + 7) / 8 * 8);
  return code;
}

}  // namespace

TEST_CASE("a kernel file gives back what was written") {
  const Folder folder;
  const std::string other(100000, 'x');
  std::string problem;
  const auto file =
      KernelFile::open(written(folder, frame("one", "text of one") + frame("two three", other)), problem);
  REQUIRE(file != nullptr);
  REQUIRE_EQ(file->names().size(), 3);
  CHECK_EQ(file->names()[0].name, "one");
  CHECK_EQ(file->ptx(file->names()[0].frame), "text of one");
  CHECK_EQ(file->names()[2].name, "three");
  CHECK_EQ(file->names()[1].frame, file->names()[2].frame);
  CHECK_EQ(file->ptx(file->names()[2].frame), other);
}

TEST_CASE("frames that are cut short or have no size are refused, and nothing is written") {
  const Folder folder;
  for (const char* const bad : {"10 a\nshort", "a\n", "0 a\n", "99999999999 a\n"}) {
    std::istringstream input(bad);
    CHECK_NE(write_kernels(input, folder.file("b.kernels")), "");
    CHECK(fs::is_empty(folder.path()));
  }
}

TEST_CASE("a kernel file with any byte changed or cut is refused or read within its bounds") {
  const Folder folder;
  const std::string good = read(written(folder, frame("one", "text of one") + frame("two", "and of two")));
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = good;
    if (round % 3 == 0) bytes.resize(random() % good.size());
    if (!bytes.empty()) bytes[random() % bytes.size()] = static_cast<char>(random());
    write(folder.file("c.kernels"), bytes);
    std::string problem;
    const auto file = KernelFile::open(folder.file("c.kernels"), problem);
    CHECK_EQ(file == nullptr, !problem.empty());
    if (!file) continue;
    for (std::size_t each = 0; each < file->frames().size(); ++each) {
      const std::string text = file->ptx(each);
      CHECK((text.empty() || text.size() == file->frames()[each].plain_size));
    }
  }
}

TEST_CASE("a fat binary is found by its machine code, with what the PTX must agree with") {
  const Folder folder;
  const std::string code = machine_code();
  const std::string image = fatbin(entry(2, 80, code));
  CHECK_NE(find_packed(view(image), folder.path()).problem, "");

  const std::string pack = folder.file("abcdef0123/");
  write(pack + "index",
        "gpupool-kernel-pack 1 libmine.so of mine\nmissing " + hex_digest(code) + " mine.cu\n");
  auto found = find_packed(view(image), folder.path());
  CHECK(found.kernels == nullptr);
  CHECK_NE(found.problem.find("kernel-packs build --file mine.cu"), std::string::npos);

  fs::rename(written(folder, frame("saxpy", "text")), pack + "mine.kernels");
  write(pack + "index",
        "gpupool-kernel-pack 1 libmine.so of mine\nbuilt " + hex_digest(code) + " mine.kernels\n");
  fs::last_write_time(pack + "index", fs::file_time_type::clock::now() + std::chrono::seconds(2));
  found = find_packed(view(image), folder.path());
  REQUIRE_MESSAGE(found.kernels != nullptr, found.problem);
  CHECK_EQ(found.kernels->names().front().name, "saxpy");
  CHECK_EQ(found.machine_code.kernels.size(), 2);
  CHECK_EQ(found.machine_code.architecture, 80);

  write(pack + "mine.kernels", "rubbish");
  CHECK_NE(find_packed(view(image), folder.path()).problem.find("mine.kernels"), std::string::npos);
}

TEST_CASE("what one pack has built, the pack of another version need not lack") {
  const std::string code = machine_code();
  const std::string head = "gpupool-kernel-pack 1 libmine.so of mine\n";
  const auto now = fs::file_time_type::clock::now();
  for (const std::string built : {"aa", "bb"}) {
    for (const int age : {-10, 10}) {
      const Folder folder;
      const std::string lacking = built == "aa" ? "bb" : "aa";
      write(folder.file(lacking + "/index"), head + "missing " + hex_digest(code) + " mine.cu\n");
      write(folder.file(built + "/index"), head + "built " + hex_digest(code) + " mine.kernels\n");
      fs::rename(written(folder, frame("saxpy", "text")), folder.file(built + "/mine.kernels"));
      fs::last_write_time(folder.file(lacking + "/index"), now + std::chrono::seconds(age));
      const auto found = find_packed(view(fatbin(entry(2, 80, code))), folder.path());
      CHECK_MESSAGE(found.kernels != nullptr, found.problem);
    }
  }
}

TEST_CASE("an index names files of its own folder only") {
  const Folder folder;
  const std::string code = machine_code();
  write(folder.file("abcdef0123/index"),
        "gpupool-kernel-pack 1 libmine.so of mine\nbuilt " + hex_digest(code) + " ../elsewhere\nbuilt\n\n");
  const auto found = find_packed(view(fatbin(entry(2, 80, code))), folder.path());
  CHECK(found.kernels == nullptr);
  CHECK_NE(found.problem, "");
}

TEST_CASE("bytes of any kind are no library, or one within its bounds") {
  CHECK_FALSE(find_images(view(std::string())).has_value());
  CHECK_FALSE(find_images(view(std::string("no library at all"))).has_value());
  const std::string good = read("/proc/self/exe");
  REQUIRE(find_images(view(good)).has_value());
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    std::string bytes =
        good.substr(0, 4096) + good.substr(good.size() - std::min<std::size_t>(good.size(), 4096));
    for (int change = 0; change < 8; ++change) bytes[random() % 64] = static_cast<char>(random());
    find_images(view(bytes));
  }
}

TEST_CASE("a stand-in has a kernel's parameters, block and shared memory") {
  CubinKernel kernel;
  kernel.name = "_Z3addPdd$1";
  kernel.parameters = {{0, 8}, {8, 1}, {16, 40}, {56, 4}};
  kernel.required_block[0] = 64;
  kernel.shared_bytes = 48;
  const std::string text = stand_in({&kernel});
  CHECK_NE(text.find(".visible .entry _Z3addPdd$1(.param .align 1 .b8 p0[8], .param .align 1 .b8 p8[1], "
                     ".param .align 8 .b8 p16[40], .param .align 1 .b8 p56[4])"),
           std::string::npos);
  CHECK_NE(text.find(".reqntid 64, 1, 1"), std::string::npos);
  CHECK_NE(text.find("s[48]"), std::string::npos);
}

TEST_CASE("what PTX cannot write has no stand-in") {
  CubinKernel unnamed, spaced, overlapping, empty;
  spaced.name = "a b; .entry c() { trap; } //";
  overlapping.name = empty.name = "kernel";
  overlapping.parameters = {{0, 8}, {4, 8}};
  empty.parameters = {{0, 0}};
  CHECK_EQ(stand_in({&unnamed, &spaced, &overlapping, &empty}), "");
  CHECK_EQ(stand_in({}), "");
}
