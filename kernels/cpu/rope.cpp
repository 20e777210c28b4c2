#include "kernels/cpu/rope.hpp"

#include "base/error.hpp"
#include "kernels/cpu/dispatch.hpp"
#include "kernels/cpu/row_grain.hpp"

namespace sluice {

void rope(const RopeArgs& args) {
  check(args.head_dim >= 2 && args.head_dim % 2 == 0, "rope: head_dim must be even");
  check(args.heads >= 0 && args.stride >= args.heads * args.head_dim,
        "rope: heads of a token reach into the next one");
  if (args.rows == 0) return;
  check(args.seq >= 1 && args.x != nullptr && args.cos != nullptr && args.sin != nullptr,
        "rope: a null buffer or no positions");
  const KernelTable& table = kernels();
  parallel_for(args.rows, row_grain(args.dtype, args.heads * args.head_dim),
               [&](std::int64_t begin, std::int64_t end) { table.rope(args, begin, end); });
}

}  // namespace sluice
