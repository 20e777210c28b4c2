#include <cerrno>

#include "base/error.hpp"
#include "offload/io_backend.hpp"

namespace sluice {

std::unique_ptr<IoBackend> make_uring_backend(int /*depth*/) {
  throw IoError("this build has no io_uring: build with liburing (Debian: liburing-dev)",
                "io_uring", ENOSYS);
}

}  // namespace sluice
