#include "runtime/observe/status_line.hpp"

#include <algorithm>

namespace sluice {

StatusLine::StatusLine(std::FILE* out, bool rewrites)
    : out_(out), rewrites_(rewrites), width_(::fileno(out)) {}

StatusLine::StatusLine(std::FILE* out) : StatusLine(out, terminal_info(::fileno(out)).rewrites) {}

int StatusLine::columns() const {
  const std::lock_guard lock(mutex_);
  return width_.columns();
}

void StatusLine::show(const std::string& text) {
  if (!rewrites_) return;
  const std::lock_guard lock(mutex_);
  take_off();
  text_ = text;
  put(text_);
  std::fflush(out_);
}

void StatusLine::remove() {
  const std::lock_guard lock(mutex_);
  if (text_.empty()) return;
  take_off();
  text_.clear();
  std::fflush(out_);
}

void StatusLine::above(const std::function<void()>& print) {
  const std::lock_guard lock(mutex_);
  if (text_.empty()) return print();
  take_off();
  std::fflush(out_);
  print();
  put(text_);
  std::fflush(out_);
}

void StatusLine::take_off() {
  if (text_.empty()) return;
  const int columns = width_.columns();
  const int rows = columns > 0 ? (std::max(shown_columns_, 1) + columns - 1) / columns : 1;
  std::string bytes;
  for (int row = 1; row < rows; ++row) bytes.append(kClearLine).append(kLineUp);
  bytes += kClearLine;
  std::fwrite(bytes.data(), 1, bytes.size(), out_);
}

// The last column stays free: some terminals wrap when it is filled.
void StatusLine::put(const std::string& text) {
  const int columns = width_.columns();
  const std::string_view shown = columns > 1 ? first_columns(text, columns - 1) : text;
  shown_columns_ = columns_of(shown);
  std::fwrite(shown.data(), 1, shown.size(), out_);
}

}  // namespace sluice
