// Encodes documents on one thread: encode_bench SPEC FILE. Documents of FILE end with a zero byte.
// Each line on standard input starts a pass; the answer is "SECONDS IDS" of the processor's time.
#include <ctime>
#include <iostream>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "runtime/data/file_io.hpp"
#include "runtime/data/tokenizer/tokenizer.hpp"

namespace {

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  try {
    const auto tokenizer = sluice::make_tokenizer(arguments[1]);
    const std::string all = sluice::read_whole_file(arguments[2], std::int64_t{1} << 31U);
    std::vector<std::string_view> documents;
    for (std::string_view rest = all; !rest.empty();) {
      const std::size_t end = std::min(rest.find('\0'), rest.size());
      documents.push_back(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    for (std::string line; std::getline(std::cin, line);) {
      const double begin = thread_seconds();
      std::size_t ids = 0;
      for (const std::string_view document : documents) ids += tokenizer->encode(document).size();
      std::cout << thread_seconds() - begin << ' ' << ids << std::endl;
    }
  } catch (const sluice::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
