// Meta kernels of operators for which libtorch has them in Python only.
#pragma once

namespace sluice {

// Registers them; later calls do nothing. Each allocates what the CPU's kernel allocates, scratch
// included, so that a counting allocator over the meta device sees the real run's bytes.
void register_meta_kernels();

}  // namespace sluice
