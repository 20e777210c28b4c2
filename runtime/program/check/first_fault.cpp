#include "runtime/program/check/first_fault.hpp"

#include "base/index.hpp"

namespace sluice {

std::string name_in_fault(const Program& program, OpId op) {
  const OpKind kind = nth(program.ops, op).kind;
  return "operation " + std::to_string(op) + " (" + std::string(name_of(kind)) + ") ";
}

void FirstFault::fail(const std::string& what) {
  if (!what.empty() && !found()) text_ = name_in_fault(program_, now_) + what;
}

void FirstFault::need(OpId other, const char* what) {
  if (!over(other)) fail(what + (" operation " + std::to_string(other)));
}

void FirstFault::fail_whole(const std::string& what) {
  if (!found()) text_ = what;
}

}  // namespace sluice
