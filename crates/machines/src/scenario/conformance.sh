# The quick cases of the conformance suite.
"$MIDSPAN" conformance --quick
finding "conformance --quick" "no undocumented difference"
