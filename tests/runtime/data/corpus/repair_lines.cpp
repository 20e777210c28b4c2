// Repairs a file: standard input is JSON lines with a string each, standard output the same lines
// repaired. ftfy_test.py compares them with ftfy.
#include <iostream>
#include <string>

#include "runtime/data/corpus/json_object.hpp"
#include "runtime/data/corpus/repair/repair.hpp"

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::string out;
    sluice::append_json_string(sluice::repair_text(sluice::json_text(line).value_or("")), out);
    std::cout << out << '\n';
  }
  return 0;
}
