#include "base/posix/io_error.hpp"

#include <cerrno>
#include <system_error>

#include "base/error.hpp"

namespace sluice {

void throw_io_error(std::string_view action, const std::string& path, int error_number,
                    std::string_view remedy) {
  std::string message = "cannot ";
  message.append(action).append(" ").append(path).append(": ");
  message.append(std::generic_category().message(error_number)).append(remedy);
  throw IoError(message, path, error_number);
}

std::string write_remedy(int error_number, std::string_view setting) {
  const std::string set = setting.empty() ? "choose " : "set " + std::string(setting) + " to ";
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
      return "; free space there or " + set + (setting.empty() ? "a folder on " : "") +
             "another disk";
    case EACCES:
    case EPERM:
    case EROFS:
      return "; " + set + "a folder you may write to";
    case ENOENT:
      return "; the folder has to exist";
    case ENOTDIR:
      return "; a part of the path is a file";
    case EISDIR:
      return "; name a file in it";
    case EMFILE:
    case ENFILE:
      return "; raise the limit on open files (ulimit -n)";
    default:
      return "";
  }
}

}  // namespace sluice
