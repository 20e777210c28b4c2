#include "runtime/generate/text_printer.hpp"

#include <poll.h>
#include <unistd.h>

#include <cstdio>

#include "runtime/generate/terminal_text.hpp"

namespace sluice {

void TextPrinter::token(std::int32_t id) {
  const std::string part = stream_.add(tokenizer_.decode_continued({&id, 1}));
  text_ += part;
  print(part);
}

void TextPrinter::finish() {
  const std::string rest = stream_.finish();
  text_ += rest;
  print(rest + "\n");
}

void TextPrinter::print(const std::string& part) const {
  if (!options_.prints || part.empty()) return;
  const std::string shown = options_.escapes ? escape_controls(part) : part;
  std::fwrite(shown.data(), 1, shown.size(), stdout);
  std::fflush(stdout);
}

bool output_has_no_reader() {
  pollfd output{STDOUT_FILENO, 0, 0};
  return ::poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
}

}  // namespace sluice
