# The quick cases of the conformance suite in one MODE. On a slow machine, steps take longer.
dpkg --install "$(package midspan)" "$(package midspan-lab)" </dev/null
midspan conformance --quick --against "midspan-$MODE" --timeout '10 min' --jobs 2
finding "conformance --quick, midspan-$MODE" "no undocumented difference"
