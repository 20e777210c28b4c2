// `sluice explain`: the meaning of a configuration's keys, from the schema.
#include <cstdio>

#include "configs/reference.hpp"
#include "runtime/cli/commands.hpp"

namespace sluice {

int run_explain(const ExplainCommand& command) {
  const std::string text = command.markdown ? reference_markdown() : explain(command.name);
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace sluice
