// Connected components of documents by external sorts: memory does not grow with the documents. The
// method alternates two steps over the edges (Kiveris et al. 2014, "Connected components in
// MapReduce and beyond"): the large star joins each document's larger neighbours with its least
// neighbour, the small star its smaller neighbours. At the end each document is joined with the
// least of its component.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "runtime/data/corpus/dedupe/row_sort.hpp"

namespace sluice {

// Calls `edge(x, y)` of the argument for each pair; x and y differ.
using EdgeSource =
    std::function<void(const std::function<void(std::uint64_t x, std::uint64_t y)>& edge)>;
// Called with each document that is not the least of its component, in order, and that least one.
using MemberSink = std::function<void(std::uint64_t document, std::uint64_t least)>;

// `folder` takes temporary files.
void connect_components(const EdgeSource& edges, const std::string& folder,
                        std::int64_t memory_bytes, const MemberSink& member);

}  // namespace sluice
