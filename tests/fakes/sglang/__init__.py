"""A stub, not SGLang: the simulator under the names of SGLang's modules, for tests of how a real deployment is driven."""
