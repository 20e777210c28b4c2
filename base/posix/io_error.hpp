// The text of an IoError of the operating system: what was tried, on what, why it failed, what to
// do.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

// Throws IoError "cannot <action> <path>: <text of error_number><remedy>".
[[noreturn]] void throw_io_error(std::string_view action, const std::string& path, int error_number,
                                 std::string_view remedy = {});

// What to do where a file cannot be made or written: "; free space ...", or empty. `setting` names
// the folder's key in the configuration ("output.dir"); empty: the folder has none.
[[nodiscard]] std::string write_remedy(int error_number, std::string_view setting = {});

}  // namespace sluice
