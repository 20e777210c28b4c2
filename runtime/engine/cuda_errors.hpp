// Errors of libtorch's CUDA half, in our words.
#pragma once

#include <exception>
#include <string>

#include "base/error.hpp"

namespace sluice {

// Calls body(). What it throws becomes Error "what: the first line of it": libtorch's errors have a
// stack of their own calls after that. Error itself passes.
template <class Body>
auto translated(const std::string& what, const Body& body) {
  try {
    return body();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    const std::string text = error.what();
    throw Error(what + ": " + text.substr(0, text.find('\n')));
  }
}

}  // namespace sluice
