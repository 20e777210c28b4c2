// The text of --help: lines of at most 80 columns, values as in argument_values, examples at the
// end.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace sluice {

class HelpText : public CLI::FormatterBase {
 public:
  // `bold`: headings stand out on the terminal.
  explicit HelpText(bool bold) : bold_(bold) {}
  [[nodiscard]] std::string make_help(const CLI::App* command, std::string name,
                                      CLI::AppFormatMode mode) const override;

 private:
  [[nodiscard]] std::string heading(const std::string& text) const;

  bool bold_;
};

}  // namespace sluice
