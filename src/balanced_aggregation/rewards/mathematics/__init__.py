r"""The verifier of mathematics, in layers: from the final box of a response to whether it is the gold.

`extraction` finds the box; `notation` brings it to one spelling; `structure` reads lists, intervals and names (`names`,
`nodes`); `units` and `literals` read units and written numbers; `expressions` leaves the rest to math-verify's parser;
`comparison`, `values` and `identity` compare. `judge` is all of it; `process` runs it where it can be killed.
"""
