// Runs a fuzz target (LLVMFuzzerTestOneInput) without libFuzzer: over the files named, then over damaged copies of
// them. Which copies is fixed by --seed=N, so the outcome is; --copies=N says how many. With libFuzzer: tools/fuzz/run.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

void Run(const std::string& text) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(text.data()), text.size());
}

// One to four damages: a bit, a byte, a piece lost, doubled, or taken from another seed.
std::string Damaged(std::string text, const std::vector<std::string>& seeds, std::mt19937& random) {
  const auto below = [&random](size_t n) { return n == 0 ? 0 : random() % n; };
  for (size_t damages = 1 + below(4); damages > 0; --damages) {
    const size_t at = below(text.size()), length = below(std::min<size_t>(text.size() - at, 32) + 1);
    switch (below(6)) {
      case 0:
        if (!text.empty()) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        break;
      case 1:
        if (!text.empty()) text[at] = static_cast<char>(random());
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(at, text.substr(at, length));
        break;
      case 4: {
        const std::string& other = seeds[below(seeds.size())];
        text.insert(at, other.substr(below(other.size()), below(32)));
        break;
      }
      case 5:
        text.resize(at);
        break;
    }
  }
  return text;
}

// Whether the argument is `name`, "--copies=", with a number, which is given then. Another text behind it ends the
// process.
bool TakeNumber(const char* argument, const char* name, uint32_t* number) {
  const size_t length = std::strlen(name);
  if (std::strncmp(argument, name, length) != 0) return false;
  char* end = nullptr;
  errno = 0;
  const unsigned long long value = std::strtoull(argument + length, &end, 10);
  if (argument[length] < '0' || argument[length] > '9' || *end != 0 || errno != 0 || value > UINT32_MAX) {
    std::fprintf(stderr, "%s: expected a number below 2^32\n", argument);
    std::exit(1);
  }
  *number = static_cast<uint32_t>(value);
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> seeds;
  uint32_t copies = 4000, seed_of_copies = 1;
  for (int i = 1; i < argc; ++i) {
    if (TakeNumber(argv[i], "--copies=", &copies) || TakeNumber(argv[i], "--seed=", &seed_of_copies)) continue;
    std::ifstream file(argv[i], std::ios::binary);
    if (!file) {
      std::fprintf(stderr, "cannot read %s\n", argv[i]);
      return 1;
    }
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  if (seeds.empty()) {
    std::fprintf(stderr, "expected files to start from\n");
    return 1;
  }
  for (const std::string& seed : seeds) Run(seed);
  std::mt19937 random(seed_of_copies);
  for (uint32_t i = 0; i < copies; ++i) Run(Damaged(seeds[i % seeds.size()], seeds, random));
  std::printf("%zu files and %u damaged copies\n", seeds.size(), copies);
  return 0;
}
