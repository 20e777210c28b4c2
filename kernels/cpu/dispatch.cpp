#include "kernels/cpu/dispatch.hpp"

#include <atomic>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "kernels/cpu/isa/isa_tables.hpp"

namespace sluice {
namespace {

std::atomic<const KernelTable*> selected{nullptr};

Isa isa_from_environment() {
  const char* text = std::getenv("SLUICE_ISA");
  const Isa best = detect_isa();
  if (text == nullptr || *text == '\0') return best;
  const std::string_view name = text;
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512}) {
    if (name != (isa == Isa::kScalar ? "scalar" : isa == Isa::kAvx2 ? "avx2" : "avx512")) continue;
    if (table_for(isa) != nullptr) return isa;
    throw ConfigError("SLUICE_ISA=" + std::string(name) +
                      ": this machine lacks these instructions (" + table_for(best)->name +
                      " is the best it has); unset the variable");
  }
  throw ConfigError("SLUICE_ISA=" + std::string(name) +
                    " is no instruction set; use scalar, avx2 or avx512, or unset the variable");
}

}  // namespace

const KernelTable* table_for(Isa isa) {
  if (static_cast<int>(isa) > static_cast<int>(detect_isa())) return nullptr;
  switch (isa) {
    case Isa::kScalar:
      return isa::scalar_table();
    case Isa::kAvx2:
      return isa::avx2_table();
    case Isa::kAvx512:
      return isa::avx512_table();
  }
  return nullptr;
}

const KernelTable& kernels() {
  // Two threads may choose at the same time; both choose the same table.
  const KernelTable* table = selected.load(std::memory_order_acquire);
  if (table == nullptr) {
    table = table_for(isa_from_environment());
    selected.store(table, std::memory_order_release);
  }
  return *table;
}

void select_isa(Isa isa) {
  const KernelTable* table = table_for(isa);
  check(table != nullptr, "select_isa: this machine cannot run it");
  selected.store(table, std::memory_order_release);
}

}  // namespace sluice
