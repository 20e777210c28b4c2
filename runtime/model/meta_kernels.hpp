// Meta kernels of operators that libtorch implements for the meta device only in Python.
#pragma once

namespace sluice {

// Registers them; later calls do nothing. Each kernel allocates what the CPU's kernel allocates,
// scratch included, so a counting allocator over the meta device counts the real run's bytes.
void register_meta_kernels();

}  // namespace sluice
